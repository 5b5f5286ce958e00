/* Palyra's interface for skills in C, without a C library. Include it once, then define `answer`.
 *
 * Every call runs in a fresh instance, so memory is taken and never given back. A negative result of a host function is
 * a status; one that brings data answers with its length, and `host_result` copies it.
 */
#ifndef PALYRA_H
#define PALYRA_H

typedef unsigned int u32;
typedef unsigned long long u64;

#define HOST(name) \
  __attribute__((import_module("palyra:plugins/host-capabilities@0.1.0"), import_name(name))) extern
#define EXPORT(name) __attribute__((export_name(name)))

HOST("http-count") int http_count(void);
HOST("http-handle") int http_handle(int index);
HOST("secret-count") int secret_count(void);
HOST("secret-handle") int secret_handle(int index);
HOST("storage-count") int storage_count(void);
HOST("storage-handle") int storage_handle(int index);
HOST("channel-count") int channel_count(void);
HOST("channel-handle") int channel_handle(int index);
HOST("http-send") int http_send(int handle, const char *head, u32 head_length, const char *body, u32 body_length);
HOST("secret-attach")
int secret_attach(int secret, int http, const char *header, u32 header_length, const char *prefix, u32 prefix_length);
HOST("secret-reveal") int secret_reveal(int handle);
HOST("storage-get") int storage_get(int handle, const char *key, u32 key_length);
HOST("storage-put") int storage_put(int handle, const char *key, u32 key_length, const char *value, u32 value_length);
HOST("storage-delete") int storage_delete(int handle, const char *key, u32 key_length);
HOST("storage-list") int storage_list(int handle, const char *prefix, u32 prefix_length);
HOST("channel-send") int channel_send(int handle, const char *text, u32 length);
HOST("log") int host_log(int level, const char *text, u32 length);
HOST("result-read") int result_read(u32 offset, char *place, u32 length);
HOST("fail") int host_fail(const char *text, u32 length);

enum { STATUS_DENIED = -6, STATUS_NOT_FOUND = -9 };

/* A piece of text: where it begins, and how long it is. */
struct text {
  const char *at;
  u32 length;
};

static u32 length_of(const char *text) {
  u32 length = 0;
  while (text[length]) length++;
  return length;
}

static struct text text_of(const char *text) { return (struct text){text, length_of(text)}; }

static int same(struct text one, const char *other) {
  u32 index = 0;
  for (; index < one.length; index++)
    if (!other[index] || one.at[index] != other[index]) return 0;
  return other[index] == 0;
}

static void copy(char *to, const char *from, u32 length) {
  for (u32 index = 0; index < length; index++) to[index] = from[index];
}

extern unsigned char __heap_base;
static u32 heap_top;

EXPORT("palyra_alloc") char *palyra_alloc(u32 size) {
  const u32 page = 65536;
  if (!heap_top) heap_top = (u32)&__heap_base;
  u32 at = (heap_top + 7) & ~7u;
  u32 pages = (u32)__builtin_wasm_memory_size(0);
  u64 end = (u64)at + size;
  if (end > (u64)pages * page) {
    u64 more = (end - (u64)pages * page + page - 1) / page;
    if (more > 65536 || __builtin_wasm_memory_grow(0, (u32)more) == (__SIZE_TYPE__)-1) __builtin_trap();
  }
  heap_top = (u32)end;
  return (char *)at;
}

static void fail(const char *message) { host_fail(message, length_of(message)); }

/* What the last host function brought; `length` is its answer. */
static struct text host_result(int length) {
  if (length <= 0) return (struct text){"", 0};
  char *place = palyra_alloc((u32)length);
  result_read(0, place, (u32)length);
  return (struct text){place, (u32)length};
}

/* Text that grows. */
struct out {
  char *at;
  u32 length, size;
};

static void put(struct out *out, const char *at, u32 length) {
  if (length > out->size - out->length) {
    u32 size = out->size * 2 + length + 64;
    if (out->at && (u32)out->at + out->size == heap_top) {
      /* The last thing taken: it grows where it is. */
      palyra_alloc(size - out->size);
    } else {
      char *moved = palyra_alloc(size);
      copy(moved, out->at, out->length);
      out->at = moved;
    }
    out->size = heap_top - (u32)out->at;
  }
  copy(out->at + out->length, at, length);
  out->length += length;
}

static void put_text(struct out *out, struct text text) { put(out, text.at, text.length); }
static void put_word(struct out *out, const char *word) { put(out, word, length_of(word)); }
static void put_char(struct out *out, char one) { put(out, &one, 1); }

static void put_number(struct out *out, u32 number) {
  char digits[10];
  u32 from = sizeof digits;
  do {
    digits[--from] = (char)('0' + number % 10);
    number /= 10;
  } while (number);
  put(out, digits + from, sizeof digits - from);
}

/* The text as a JSON string, with its quotes. */
static void put_string(struct out *out, struct text text) {
  static const char hex[] = "0123456789abcdef";
  put_char(out, '"');
  for (u32 index = 0; index < text.length; index++) {
    unsigned char one = (unsigned char)text.at[index];
    if (one == '"' || one == '\\') {
      put_char(out, '\\');
      put_char(out, (char)one);
    } else if (one == '\n') {
      put_word(out, "\\n");
    } else if (one < 0x20) {
      put_word(out, "\\u00");
      put_char(out, hex[one >> 4]);
      put_char(out, hex[one & 15]);
    } else {
      put_char(out, (char)one);
    }
  }
  put_char(out, '"');
}

static struct text written(struct out *out) { return (struct text){out->at, out->length}; }

/* Yours: `tool` is the tool's id in skill.toml, `input` JSON that fits its schema; write JSON, or call `fail`. */
static void answer(struct text tool, struct text input, struct out *out);

EXPORT("run") u64 run(const char *tool, u32 tool_length, const char *input, u32 input_length) {
  struct out out = {0, 0, 0};
  answer((struct text){tool, tool_length}, (struct text){input, input_length}, &out);
  return ((u64)(u32)out.at << 32) | out.length;
}

#endif
