#include "palyra.h"
#include "json.h"

/* Says in words why the storage did not do what was asked. */
static void fail_with(int status) {
  if (status == STATUS_NOT_FOUND) fail("there is no note with this title");
  else if (status == -7) fail("the storage is full");
  else fail("the storage did not answer");
}

static void put_note(int storage, struct text title, struct text input, struct out *out) {
  struct text note = json_text(json_member(input, "text"));
  int status = storage_put(storage, title.at, title.length, note.at, note.length);
  if (status < 0) {
    fail_with(status);
    return;
  }
  put_word(out, "{\"title\":");
  put_string(out, title);
  put_word(out, ",\"bytes\":");
  put_number(out, note.length);
  put_word(out, "}");
}

static void get_note(int storage, struct text title, struct out *out) {
  int length = storage_get(storage, title.at, title.length);
  if (length < 0) {
    fail_with(length);
    return;
  }
  struct text note = host_result(length);
  put_word(out, "{\"title\":");
  put_string(out, title);
  put_word(out, ",\"text\":");
  put_string(out, note);
  put_word(out, "}");
}

static char lower(char one) { return one >= 'A' && one <= 'Z' ? (char)(one + 32) : one; }

static int holds(struct text note, struct text word) {
  for (u32 at = 0; at + word.length <= note.length; at++) {
    u32 index = 0;
    while (index < word.length && lower(note.at[at + index]) == lower(word.at[index])) index++;
    if (index == word.length) return 1;
  }
  return 0;
}

static void list_notes(int storage, struct text input, struct out *out) {
  struct text word = json_text(json_member(input, "with"));
  int length = storage_list(storage, "", 0);
  if (length < 0) {
    fail_with(length);
    return;
  }
  struct text titles = host_result(length);
  struct json_walk walk = {0};
  int some = 0;
  put_word(out, "{\"titles\":[");
  while (json_next(titles, &walk)) {
    struct text title = json_text(walk.value);
    if (word.length && !holds(title, word)) {
      int found = storage_get(storage, title.at, title.length);
      if (found < 0 || !holds(host_result(found), word)) continue;
    }
    if (some++) put_char(out, ',');
    put_string(out, title);
  }
  put_word(out, "]}");
}

static void delete_note(int storage, struct text title, struct out *out) {
  int status = storage_delete(storage, title.at, title.length);
  if (status < 0) {
    fail_with(status);
    return;
  }
  put_word(out, "{\"deleted\":");
  put_string(out, title);
  put_word(out, "}");
}

static void answer(struct text tool, struct text input, struct out *out) {
  int storage = storage_handle(0);
  if (storage < 0) {
    fail("no storage is granted");
    return;
  }
  struct text title = json_text(json_member(input, "title"));
  if (same(tool, "put")) put_note(storage, title, input, out);
  else if (same(tool, "get")) get_note(storage, title, out);
  else if (same(tool, "list")) list_notes(storage, input, out);
  else if (same(tool, "delete")) delete_note(storage, title, out);
  else fail("this skill has no such tool");
}
