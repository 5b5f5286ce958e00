/* Reading JSON in place: a value is the piece of text that spells it. The host has checked the input against the tool's
 * schema, so what is read is JSON; other text gives odd values, never a read outside of it. */
#ifndef PALYRA_JSON_H
#define PALYRA_JSON_H

#include "palyra.h"

static u32 json_space(struct text in, u32 at) {
  while (at < in.length && (in.at[at] == ' ' || in.at[at] == '\t' || in.at[at] == '\n' || in.at[at] == '\r')) at++;
  return at;
}

static u32 json_after_string(struct text in, u32 at) {
  for (at++; at < in.length && in.at[at] != '"'; at++)
    if (in.at[at] == '\\') at++;
  return at < in.length ? at + 1 : in.length;
}

/* The place behind the value that begins at `at`. */
static u32 json_after(struct text in, u32 at) {
  u32 depth = 0;
  do {
    if (at >= in.length) return in.length;
    char one = in.at[at];
    if (one == '"') {
      at = json_after_string(in, at);
      continue;
    }
    if (one == '{' || one == '[') depth++;
    if (one == '}' || one == ']') {
      if (!depth) return at;
      depth--;
    } else if (!depth) {
      while (at < in.length && in.at[at] != ',' && in.at[at] != '}' && in.at[at] != ']' && in.at[at] > ' ') at++;
      return at;
    }
    at++;
  } while (depth);
  return at;
}

/* What a value is: one of { [ " t f n, or 0 for a number; a space where there is none. */
static char json_kind(struct text value) {
  if (!value.length) return ' ';
  char first = value.at[0];
  return first == '-' || (first >= '0' && first <= '9') ? '0' : first;
}

/* Goes through an array or an object: begin with zeros; each call gives the next `value`, in an object with its `key`. */
struct json_walk {
  u32 at;
  struct text key, value;
};

static int json_next(struct text in, struct json_walk *walk) {
  u32 at = json_space(in, walk->at ? walk->at : 0);
  if (!walk->at) {
    if (at >= in.length || (in.at[at] != '{' && in.at[at] != '[')) return 0;
    at = json_space(in, at + 1);
  } else if (at < in.length && in.at[at] == ',') {
    at = json_space(in, at + 1);
  }
  if (at >= in.length || in.at[at] == '}' || in.at[at] == ']') return 0;
  walk->key = (struct text){"", 0};
  if (in.at[json_space(in, 0)] == '{') {
    u32 end = json_after_string(in, at);
    walk->key = (struct text){in.at + at, end - at};
    at = json_space(in, end);
    if (at < in.length && in.at[at] == ':') at = json_space(in, at + 1);
  }
  u32 end = json_after(in, at);
  walk->value = (struct text){in.at + at, end - at};
  walk->at = end;
  return 1;
}

static u32 json_hex(struct text in, u32 at) {
  u32 number = 0;
  for (u32 index = at; index < at + 4 && index < in.length; index++) {
    char one = in.at[index];
    number = number * 16 + (u32)(one <= '9' ? one - '0' : (one | 32) - 'a' + 10);
  }
  return number;
}

static void put_utf8(struct out *out, u32 point) {
  if (point < 0x80) {
    put_char(out, (char)point);
  } else if (point < 0x800) {
    put_char(out, (char)(0xC0 | point >> 6));
    put_char(out, (char)(0x80 | (point & 63)));
  } else if (point < 0x10000) {
    put_char(out, (char)(0xE0 | point >> 12));
    put_char(out, (char)(0x80 | (point >> 6 & 63)));
    put_char(out, (char)(0x80 | (point & 63)));
  } else {
    put_char(out, (char)(0xF0 | point >> 18));
    put_char(out, (char)(0x80 | (point >> 12 & 63)));
    put_char(out, (char)(0x80 | (point >> 6 & 63)));
    put_char(out, (char)(0x80 | (point & 63)));
  }
}

/* The text that a JSON string stands for; for any other value, its spelling. */
static struct text json_text(struct text value) {
  if (json_kind(value) != '"') return value;
  struct out out = {0, 0, 0};
  for (u32 at = 1; at + 1 < value.length; at++) {
    char one = value.at[at];
    if (one != '\\') {
      put_char(&out, one);
      continue;
    }
    at++;
    switch (value.at[at]) {
      case 'n': put_char(&out, '\n'); break;
      case 't': put_char(&out, '\t'); break;
      case 'r': put_char(&out, '\r'); break;
      case 'b': put_char(&out, '\b'); break;
      case 'f': put_char(&out, '\f'); break;
      case 'u': {
        u32 point = json_hex(value, at + 1);
        at += 4;
        if (point >= 0xD800 && point < 0xDC00 && at + 6 < value.length) {
          point = 0x10000 + ((point & 0x3FF) << 10) + (json_hex(value, at + 3) & 0x3FF);
          at += 6;
        }
        put_utf8(&out, point);
        break;
      }
      default: put_char(&out, value.at[at]);
    }
  }
  return written(&out);
}

/* The member of an object; of length 0 where there is none. */
static struct text json_member(struct text object, const char *key) {
  struct json_walk walk = {0};
  while (json_next(object, &walk))
    if (same(json_text(walk.key), key)) return walk.value;
  return (struct text){"", 0};
}

#endif
