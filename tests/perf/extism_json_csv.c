/* The example skill json-csv behind extism's interface: its own source, with input and output in memory of the host. */
#define import_module(name) unused
#define import_name(name) unused
#include "main.c"
#undef import_module
#undef import_name

#define EXTISM(name) __attribute__((import_module("extism:host/env"), import_name(name))) extern
EXTISM("input_length") u64 input_length(void);
EXTISM("input_load_u8") int input_load_u8(u64 at);
EXTISM("input_load_u64") u64 input_load_u64(u64 at);
EXTISM("alloc") u64 extism_alloc(u64 length);
EXTISM("store_u8") void store_u8(u64 at, int byte);
EXTISM("store_u64") void store_u64(u64 at, u64 word);
EXTISM("output_set") void output_set(u64 at, u64 length);

int host_fail(const char *text, u32 length) {
  (void)text;
  (void)length;
  __builtin_trap();
}

/* Eight bytes at a time, as extism's own kit does. */
EXPORT("call") int call(void) {
  u32 length = (u32)input_length(), at = 0;
  char *input = palyra_alloc(length + 8);
  for (; at + 8 <= length; at += 8) *(u64 *)(input + at) = input_load_u64(at);
  for (; at < length; at++) input[at] = (char)input_load_u8(at);
  struct out out = {0, 0, 0};
  answer(text_of("to_csv"), (struct text){input, length}, &out);
  u64 place = extism_alloc(out.length);
  for (at = 0; at + 8 <= out.length; at += 8) store_u64(place + at, *(u64 *)(out.at + at));
  for (; at < out.length; at++) store_u8(place + at, out.at[at]);
  output_set(place, out.length);
  return 0;
}
