#include "palyra.h"
#include "json.h"
#include "markup.h"

static void put_result(struct out *out, struct text title, struct text text) {
  put_word(out, "\"title\":");
  put_string(out, title);
  put_word(out, ",\"text\":");
  put_string(out, text);
  put_word(out, "}");
}

static void put_converted(struct out *out, struct text source, int is_markdown) {
  struct out text = {0}, title = {0};
  if (is_markdown) markdown_text(source, &text, &title);
  else html_text(source, &text, &title);
  put_result(out, written(&title), written(&text));
}

static int is_header(struct text pair, const char *name, struct text *value) {
  struct json_walk walk = {0};
  if (!json_next(pair, &walk)) return 0;
  struct text key = json_text(walk.value);
  u32 index = 0;
  for (; index < key.length; index++)
    if (lower(key.at[index]) != name[index]) return 0;
  if (name[index] || !json_next(pair, &walk)) return 0;
  *value = json_text(walk.value);
  return 1;
}

static int ends_with(struct text text, const char *end) {
  u32 length = length_of(end);
  return text.length >= length && same((struct text){text.at + text.length - length, length}, end);
}

static void fetch(struct text input, struct out *out) {
  struct text path = json_text(json_member(input, "path"));
  struct text place = json_member(input, "host");
  int index = 0;
  for (u32 at = 0; at < place.length; at++) index = index * 10 + (place.at[at] - '0');
  int host = http_handle(index);
  if (host < 0) {
    fail("no such host is granted");
    return;
  }
  struct out head = {0};
  put_word(&head, "{\"method\":\"GET\",\"path\":");
  put_string(&head, path);
  put_word(&head, ",\"headers\":[[\"accept\",\"text/html, text/markdown, text/plain\"]]}");
  int length = http_send(host, head.at, head.length, "", 0);
  if (length < 0) {
    fail(length == STATUS_DENIED ? "the request was denied" : "the page could not be fetched");
    return;
  }
  /* A line of JSON, then the body. */
  struct text answer = host_result(length);
  u32 line = 0;
  while (line < answer.length && answer.at[line] != '\n') line++;
  struct text about = {answer.at, line};
  struct text body = {answer.at + line + 1, line < answer.length ? answer.length - line - 1 : 0};
  struct text type = {"", 0};
  struct json_walk walk = {0};
  struct text headers = json_member(about, "headers");
  while (json_next(headers, &walk)) is_header(walk.value, "content-type", &type);
  int is_markdown = begins_with(type, "text/markdown") || (!begins_with(type, "text/html") && ends_with(path, ".md"));
  put_word(out, "{\"status\":");
  put_text(out, json_member(about, "status"));
  put_char(out, ',');
  if (begins_with(type, "text/plain") && !is_markdown) put_result(out, (struct text){"", 0}, body);
  else put_converted(out, body, is_markdown);
}

static void answer(struct text tool, struct text input, struct out *out) {
  if (same(tool, "fetch")) {
    fetch(input, out);
  } else if (same(tool, "convert")) {
    put_char(out, '{');
    put_converted(out, json_text(json_member(input, "source")), same(json_text(json_member(input, "format")), "markdown"));
  } else {
    fail("this skill has no such tool");
  }
}
