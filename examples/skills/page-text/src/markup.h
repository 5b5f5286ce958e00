/* Readable text from HTML and from Markdown. Not a parser of either: it keeps words and the breaks between blocks. */
#ifndef MARKUP_H
#define MARKUP_H

#include "json.h"

static char lower(char one) { return one >= 'A' && one <= 'Z' ? (char)(one + 32) : one; }
static int is_letter(char one) { return lower(one) >= 'a' && lower(one) <= 'z'; }
static int is_space(char one) { return one == ' ' || one == '\t' || one == '\n' || one == '\r'; }

/* Whether the text begins with a word, whatever its case. */
static int begins_with(struct text text, const char *word) {
  u32 index = 0;
  for (; word[index]; index++)
    if (index >= text.length || lower(text.at[index]) != word[index]) return 0;
  return 1;
}

static struct text from(struct text text, u32 at) {
  return at < text.length ? (struct text){text.at + at, text.length - at} : (struct text){"", 0};
}

/* A word in a text with single spaces; blocks are set apart by line feeds, at most two in a row. */
struct page {
  struct out *out;
  int breaks, space;
};

static void page_char(struct page *page, char one) {
  if (is_space(one)) {
    page->space = 1;
    return;
  }
  if (page->out->length) {
    for (int index = 0; index < page->breaks; index++) put_char(page->out, '\n');
    if (!page->breaks && page->space) put_char(page->out, ' ');
  }
  page->breaks = page->space = 0;
  put_char(page->out, one);
}

static void page_break(struct page *page, int breaks) {
  if (page->breaks < breaks) page->breaks = breaks;
}

static int is_tag(struct text name, const char *const *tags) {
  for (; *tags; tags++) {
    u32 length = length_of(*tags);
    if (length == name.length && begins_with(name, *tags)) return 1;
  }
  return 0;
}

static const char *const BLOCKS[] = {"p", "div", "section", "article", "header", "footer", "main", "nav", "ul", "ol",
  "table", "blockquote", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "form", "figure", "aside", "dl", 0};
static const char *const LINES[] = {"br", "li", "tr", "dt", "dd", "option", 0};
static const char *const SILENT[] = {"script", "style", "noscript", "template", "svg", "iframe", "head", 0};

/* The place behind the tag that ends an element whose content is not read. */
static u32 after_element(struct text html, u32 at, struct text name) {
  for (; at + 2 + name.length <= html.length; at++) {
    if (html.at[at] != '<' || html.at[at + 1] != '/') continue;
    u32 index = 0;
    while (index < name.length && lower(html.at[at + 2 + index]) == lower(name.at[index])) index++;
    if (index < name.length || (at + 2 + index < html.length && is_letter(html.at[at + 2 + index]))) continue;
    while (at < html.length && html.at[at] != '>') at++;
    return at + 1;
  }
  return html.length;
}

static u32 put_entity(struct text html, u32 at, struct page *page) {
  static const struct { const char *name; u32 point; } named[] = {{"amp;", '&'}, {"lt;", '<'}, {"gt;", '>'},
    {"quot;", '"'}, {"apos;", '\''}, {"nbsp;", ' '}, {"ndash;", 0x2013}, {"mdash;", 0x2014}, {"hellip;", 0x2026},
    {"copy;", 0xA9}, {"lsquo;", 0x2018}, {"rsquo;", 0x2019}, {"ldquo;", 0x201C}, {"rdquo;", 0x201D}};
  struct text rest = from(html, at + 1);
  u32 point = 0, used = 0;
  for (u32 index = 0; index < sizeof named / sizeof *named; index++)
    if (begins_with(rest, named[index].name)) {
      point = named[index].point;
      used = length_of(named[index].name);
    }
  if (!used && rest.length > 2 && rest.at[0] == '#') {
    int hex = lower(rest.at[1]) == 'x';
    u32 index = hex ? 2 : 1;
    for (; index < rest.length && index < 10 && rest.at[index] != ';'; index++) {
      char one = lower(rest.at[index]);
      if (one >= '0' && one <= '9') point = point * (hex ? 16 : 10) + (u32)(one - '0');
      else if (hex && one >= 'a' && one <= 'f') point = point * 16 + (u32)(one - 'a' + 10);
      else break;
    }
    if (index < rest.length && rest.at[index] == ';' && point && point < 0x110000 && (point < 0xD800 || point > 0xDFFF))
      used = index + 1;
  }
  if (!used) {
    page_char(page, '&');
    return at + 1;
  }
  if (point < 0x80) {
    page_char(page, (char)point);
  } else {
    struct out spelled = {0};
    put_utf8(&spelled, point);
    for (u32 index = 0; index < spelled.length; index++) page_char(page, spelled.at[index]);
  }
  return at + 1 + used;
}

static void html_piece(struct text html, u32 at, u32 end, struct page *page) {
  struct text piece = {html.at, end};
  while (at < end) {
    if (piece.at[at] == '&') at = put_entity(piece, at, page);
    else page_char(page, piece.at[at++]);
  }
}

static void html_text(struct text html, struct out *out, struct out *title) {
  struct page page = {out, 0, 0};
  u32 at = 0;
  while (at < html.length) {
    if (html.at[at] == '&') {
      at = put_entity(html, at, &page);
      continue;
    }
    if (html.at[at] != '<') {
      page_char(&page, html.at[at++]);
      continue;
    }
    if (begins_with(from(html, at), "<!--")) {
      at += 4;
      while (at < html.length && !begins_with(from(html, at), "-->")) at++;
      at += 3;
      continue;
    }
    u32 name_at = at + 1, end = at;
    int closing = name_at < html.length && html.at[name_at] == '/';
    if (closing) name_at++;
    u32 name_end = name_at;
    while (name_end < html.length && (is_letter(html.at[name_end]) || (html.at[name_end] >= '0' && html.at[name_end] <= '9')))
      name_end++;
    if (name_end == name_at && !(name_at < html.length && (html.at[name_at] == '!' || html.at[name_at] == '?'))) {
      page_char(&page, html.at[at++]);
      continue;
    }
    struct text name = {html.at + name_at, name_end - name_at};
    char quote = 0;
    for (end = name_end; end < html.length && (quote || html.at[end] != '>'); end++) {
      if (quote ? html.at[end] == quote : html.at[end] == '"' || html.at[end] == '\'') quote = quote ? 0 : html.at[end];
    }
    at = end + 1;
    if (is_tag(name, BLOCKS)) page_break(&page, 2);
    else if (is_tag(name, LINES)) page_break(&page, 1);
    else if (begins_with(name, "td") || begins_with(name, "th")) page.space = 1;
    if (!closing && is_tag(name, SILENT)) {
      u32 inside = at;
      at = after_element(html, inside, name);
      /* The head is not read but for its title. */
      for (u32 found = inside; begins_with(name, "head") && found < at; found++) {
        if (!begins_with(from(html, found), "<title>")) continue;
        u32 last = found + 7;
        while (last < at && html.at[last] != '<') last++;
        struct page heading = {title, 0, 0};
        html_piece(html, found + 7, last, &heading);
        break;
      }
    }
  }
}

/* A line of Markdown without its marks: emphasis, code, links and images. */
static void markdown_line(struct text line, struct page *page) {
  for (u32 at = 0; at < line.length; at++) {
    char one = line.at[at];
    if (one == '\\' && at + 1 < line.length) {
      page_char(page, line.at[++at]);
    } else if (one == '`' || one == '*') {
      continue;
    } else if (one == '!' && at + 1 < line.length && line.at[at + 1] == '[') {
      continue;
    } else if (one == '[') {
      continue;
    } else if (one == ']' && at + 1 < line.length && line.at[at + 1] == '(') {
      u32 depth = 0;
      for (at++; at < line.length; at++) {
        if (line.at[at] == '(') depth++;
        if (line.at[at] == ')' && !--depth) break;
      }
    } else if (one == ']') {
      continue;
    } else {
      page_char(page, one);
    }
  }
}

static void markdown_text(struct text source, struct out *out, struct out *title) {
  struct page page = {out, 0, 0};
  int in_code = 0;
  for (u32 at = 0; at < source.length;) {
    u32 end = at;
    while (end < source.length && source.at[end] != '\n') end++;
    struct text line = {source.at + at, end - at};
    at = end + 1;
    u32 first = 0;
    while (first < line.length && is_space(line.at[first])) first++;
    struct text bare = from(line, first);
    if (begins_with(bare, "```") || begins_with(bare, "~~~")) {
      in_code = !in_code;
      page_break(&page, 2);
      continue;
    }
    if (in_code) {
      page_break(&page, 1);
      for (u32 index = 0; index < line.length; index++) page_char(&page, line.at[index]);
      continue;
    }
    if (!bare.length) {
      page_break(&page, 2);
      continue;
    }
    u32 marks = 0;
    while (marks < bare.length && bare.at[marks] == '#') marks++;
    if (marks && marks <= 6 && marks < bare.length && bare.at[marks] == ' ') {
      page_break(&page, 2);
      bare = from(bare, marks + 1);
      if (marks == 1 && !title->length) {
        struct page heading = {title, 0, 0};
        markdown_line(bare, &heading);
      }
      markdown_line(bare, &page);
      page_break(&page, 2);
      continue;
    }
    while (begins_with(bare, "> ")) bare = from(bare, 2);
    if (begins_with(bare, "- ") || begins_with(bare, "* ") || begins_with(bare, "+ ")) {
      page_break(&page, 1);
      page_char(&page, '-');
      page.space = 1;
      bare = from(bare, 2);
    }
    page.space = 1;
    markdown_line(bare, &page);
  }
}

#endif
