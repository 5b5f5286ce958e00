#include "palyra.h"
#include "json.h"

static char delimiter_of(struct text input) {
  struct text given = json_text(json_member(input, "delimiter"));
  return given.length == 1 ? given.at[0] : ',';
}

/* A cell, in quotes where it would be read differently without. */
static void put_cell(struct out *csv, struct text cell, char delimiter) {
  int quotes = 0;
  for (u32 index = 0; index < cell.length; index++) {
    char one = cell.at[index];
    if (one == '"' || one == '\n' || one == '\r' || one == delimiter) quotes = 1;
  }
  if (!quotes) {
    put_text(csv, cell);
    return;
  }
  put_char(csv, '"');
  for (u32 index = 0; index < cell.length; index++) {
    if (cell.at[index] == '"') put_char(csv, '"');
    put_char(csv, cell.at[index]);
  }
  put_char(csv, '"');
}

/* The columns: named by the caller, else the keys of the first row. */
static struct text *columns_of(struct text input, struct text rows, u32 *count) {
  struct text named = json_member(input, "columns");
  struct json_walk walk = {0}, first = {0};
  int by_key = !named.length;
  if (by_key) {
    if (!json_next(rows, &first)) return 0;
    named = first.value;
  }
  *count = 0;
  while (json_next(named, &walk)) ++*count;
  struct text *columns = (struct text *)palyra_alloc(*count * sizeof(struct text));
  walk = (struct json_walk){0};
  for (u32 index = 0; json_next(named, &walk); index++) columns[index] = json_text(by_key ? walk.key : walk.value);
  return columns;
}

static struct text member_named(struct text object, struct text name) {
  struct json_walk walk = {0};
  while (json_next(object, &walk)) {
    struct text key = json_text(walk.key);
    u32 index = 0;
    while (index < key.length && index < name.length && key.at[index] == name.at[index]) index++;
    if (index == key.length && index == name.length) return walk.value;
  }
  return (struct text){"", 0};
}

static void to_csv(struct text input, struct out *out) {
  struct text rows = json_member(input, "rows");
  char delimiter = delimiter_of(input);
  u32 count = 0, lines = 0;
  struct text *columns = columns_of(input, rows, &count);
  struct out csv = {0};
  for (u32 index = 0; index < count; index++) {
    if (index) put_char(&csv, delimiter);
    put_cell(&csv, columns[index], delimiter);
  }
  if (count) put_word(&csv, "\r\n");
  struct json_walk row = {0};
  while (json_next(rows, &row)) {
    for (u32 index = 0; index < count; index++) {
      struct text value = member_named(row.value, columns[index]);
      if (index) put_char(&csv, delimiter);
      if (json_kind(value) != 'n') put_cell(&csv, json_text(value), delimiter);
    }
    put_word(&csv, "\r\n");
    lines++;
  }
  put_word(out, "{\"csv\":");
  put_string(out, written(&csv));
  put_word(out, ",\"rows\":");
  put_number(out, lines);
  put_word(out, "}");
}

/* Reads one cell from `at`; `ended` says what came after it: the delimiter, a line feed, or 0 for the end. */
static u32 next_cell(struct text csv, u32 at, char delimiter, struct out *cell, char *ended) {
  int quoted = at < csv.length && csv.at[at] == '"';
  if (quoted) at++;
  while (at < csv.length) {
    char one = csv.at[at];
    if (quoted && one == '"') {
      if (at + 1 < csv.length && csv.at[at + 1] == '"') {
        put_char(cell, '"');
        at += 2;
        continue;
      }
      quoted = 0;
      at++;
      continue;
    }
    if (!quoted && one == '\r' && at + 1 < csv.length && csv.at[at + 1] == '\n') {
      at++;
      continue;
    }
    if (!quoted && (one == delimiter || one == '\n')) {
      *ended = one;
      return at + 1;
    }
    put_char(cell, one);
    at++;
  }
  *ended = 0;
  return at;
}

static void to_json(struct text input, struct out *out) {
  struct text csv = json_text(json_member(input, "csv"));
  char delimiter = delimiter_of(input), ended = '\n';
  u32 at = 0, columns = 0, size = 0;
  struct text *names = 0;
  put_word(out, "{\"columns\":[");
  do {
    if (at >= csv.length) break;
    struct out cell = {0};
    at = next_cell(csv, at, delimiter, &cell, &ended);
    if (columns == size) {
      struct text *more = (struct text *)palyra_alloc((size * 2 + 16) * sizeof(struct text));
      for (u32 index = 0; index < columns; index++) more[index] = names[index];
      names = more;
      size = size * 2 + 16;
    }
    names[columns] = written(&cell);
    if (columns) put_char(out, ',');
    put_string(out, names[columns++]);
  } while (ended == delimiter);
  put_word(out, "],\"rows\":[");
  u32 lines = 0;
  while (at < csv.length) {
    u32 column = 0;
    if (lines++) put_char(out, ',');
    put_char(out, '{');
    do {
      struct out cell = {0};
      at = next_cell(csv, at, delimiter, &cell, &ended);
      if (column >= columns) {
        fail("a line has more cells than the first one has names");
        return;
      }
      if (column) put_char(out, ',');
      put_string(out, names[column++]);
      put_char(out, ':');
      put_string(out, written(&cell));
    } while (ended == delimiter);
    put_char(out, '}');
  }
  put_word(out, "]}");
}

static void answer(struct text tool, struct text input, struct out *out) {
  if (same(tool, "to_csv")) to_csv(input, out);
  else if (same(tool, "to_json")) to_json(input, out);
  else fail("this skill has no such tool");
}
