"""An HTML page as the text a person would read, in a plain kind of Markdown.

Scripts, styles, comments, navigation and whatever the page hides from the eye are left out: text that only a program
sees is where instructions to programs are put. This is not a defence, only less noise; the result is data all the same.
"""

import re
from collections import Counter
from typing import Final
from urllib.parse import urljoin

import msgspec

from palyra.fetch.html_tokens import End, Start, Text, tokens
from palyra.fetch.limits import (
    MAX_HTML_CHARS,
    MAX_HTML_TOKENS,
    MAX_LAYOUT_DEPTH,
    MAX_SHOWN_URL_CHARS,
    MAX_TABLE_COLUMNS,
    MAX_TITLE_CHARS,
)
from palyra.fetch.visible_text import one_line

_VOID: Final = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr")
)
_SKIPPED: Final = frozenset(
    ("script", "style", "template", "svg", "math", "object", "canvas", "iframe", "noembed", "noframes", "select",
     "datalist", "textarea", "audio", "video", "map", "dialog")
)  # fmt: skip
_BLOCKS: Final = frozenset(
    ("address", "article", "aside", "body", "center", "details", "dd", "div", "dl", "dt", "fieldset", "figcaption",
     "figure", "footer", "form", "header", "hgroup", "html", "legend", "main", "nav", "p", "section", "summary",
     "caption")
)  # fmt: skip
_PARAGRAPHS: Final = frozenset(("p", "dl", "figure", "details", "article", "section", "main", "table"))
_HEADINGS: Final = {f"h{level}": "#" * level for level in range(1, 7)}
_LISTS: Final = frozenset(("ul", "ol", "menu"))
# An element of these that follows one of the same kind ends it, though nobody said so.
_ENDS_ITS_LIKE: Final = frozenset(("p", "li", "dt", "dd", "tr", "td", "th", "option"))
_HIDING: Final = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|(?:font-size|opacity)\s*:\s*0(?:\.0*)?(?:px|em|rem|%)?\s*(?:;|!|$)",
    re.IGNORECASE,
)
_LINKED: Final = ("http://", "https://", "mailto:")
_SPACES: Final = re.compile(r"\s+")


class Readable(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    title: str = ""
    truncated: bool = False


def readable(page: str, base_url: str, most: int) -> Readable:
    """``most`` bounds the characters of the text. Links are written out against ``base_url``."""
    cut = len(page) > MAX_HTML_CHARS
    page = page[:MAX_HTML_CHARS]
    found = _render(page, base_url, most, navigation=False)
    if not found.text:
        # A page that is nothing but navigation is an index: then that is what there is to read.
        found = _render(page, base_url, most, navigation=True)
    return msgspec.structs.replace(found, truncated=found.truncated or cut)


def _render(page: str, base_url: str, most: int, *, navigation: bool) -> Readable:
    layout = _Layout(base_url, most, navigation=navigation)
    for count, token in enumerate(tokens(page)):
        match token:
            case Text(text):
                layout.text(text)
            case Start(name, attributes):
                layout.start(name, attributes)
            case End(name):
                layout.end(name)
        if count >= MAX_HTML_TOKENS:
            layout.full = True
        if layout.full:
            break
    return Readable(text=layout.finish(), title=layout.title, truncated=layout.full)


class _Layout:
    """Takes tokens and sets lines. Elements are kept on a stack only to know where hiding, quoting and lists end."""

    def __init__(self, base_url: str, most: int, *, navigation: bool) -> None:
        self._base = base_url
        self._most = most
        self._skipped = _SKIPPED if navigation else _SKIPPED | {"nav"}
        self._stack: list[str] = []
        self._open: Counter[str] = Counter()
        self._hidden_from: int | None = None
        self._parts: list[str] = []
        self._size = 0
        self._breaks = 0
        self._space = False
        self._lists: list[int | None] = []
        self._quotes = 0
        self._columns = 0
        self._in_row = False
        self._pre: list[str] | None = None
        self._links: list[str] = []
        self._in_title = False
        self.title = ""
        self.full = False

    def text(self, text: str) -> None:
        if self._in_title:
            self.title = self.title or one_line(text, MAX_TITLE_CHARS)
        elif self._hidden_from is None:
            if self._pre is not None:
                self._pre.append(text)
            else:
                self._words(text)

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name in _ENDS_ITS_LIKE and self._stack and self._stack[-1] == name:
            self.end(name)
        if name == "title":
            # Titles inside pictures are captions of parts of them.
            self._in_title = not self._open["svg"]
        if name not in _VOID:
            self._stack.append(name)
            self._open[name] += 1
            if self._hidden_from is None and (name in self._skipped or _hides(attributes)):
                self._hidden_from = len(self._stack)
        elif _hides(attributes):
            return
        if self._hidden_from is None:
            self._begin(name, attributes)

    def end(self, name: str) -> None:
        if not self._open[name]:
            if name == "br":
                self._break(1)
            return
        while True:
            ended = self._stack.pop()
            self._open[ended] -= 1
            if ended == "title":
                self._in_title = False
            if self._hidden_from is None:
                self._finish(ended)
            elif len(self._stack) < self._hidden_from:
                self._hidden_from = None
            if ended == name:
                return

    def finish(self) -> str:
        while self._stack:
            self.end(self._stack[-1])
        return "".join(self._parts)[: self._most].strip()

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        if name in _HEADINGS:
            self._break(2)
            self._mark(_HEADINGS[name] + " ")
        elif name in _LISTS:
            self._break(1 if self._lists else 2)
            self._lists.append(1 if name == "ol" else None)
        elif name == "li":
            self._break(1)
            self._mark(self._bullet())
        elif name == "a":
            self._link_begins(attributes)
        elif name == "br":
            self._break(1)
        elif name == "hr":
            self._break(2)
            self._mark("---")
            self._break(2)
        elif name == "pre":
            self._break(2)
            self._pre = []
        elif name == "blockquote":
            self._break(2)
            self._quotes += 1
        elif name in ("tr", "td", "th"):
            self._cell_begins(name)
        elif name == "img" and attributes.get("alt", "").strip():
            self._words(f" [image: {one_line(attributes['alt'], MAX_TITLE_CHARS)}] ")
        elif name == "base":
            self._rebase(attributes.get("href", ""))
        elif name in _BLOCKS or name == "table":
            self._break(2 if name in _PARAGRAPHS else 1)

    def _finish(self, name: str) -> None:
        if name in _HEADINGS:
            self._break(2)
        elif name in _LISTS:
            self._lists.pop()
            self._break(1 if self._lists else 2)
        elif name == "a":
            self._link_ends()
        elif name == "pre":
            self._fence()
        elif name == "blockquote":
            self._quotes -= 1
            self._break(2)
        elif name == "tr":
            if self._columns:
                self._space = False
                self._mark(" |")
            self._columns, self._in_row = 0, False
            self._break(1)
        elif name in _BLOCKS or name in ("table", "li"):
            self._break(2 if name in _PARAGRAPHS else 1)

    def _cell_begins(self, name: str) -> None:
        if name == "tr":
            self._in_row, self._columns = False, 0
            self._break(1)
        elif self._columns < MAX_TABLE_COLUMNS:
            self._mark("| " if not self._columns else " | ")
            self._columns += 1
            self._in_row, self._space = True, False
        else:
            self._space = True

    def _link_begins(self, attributes: dict[str, str]) -> None:
        url = ""
        href = attributes.get("href", "").strip()
        if href and not href.startswith("#"):
            try:
                url = urljoin(self._base, href)
            except ValueError:
                url = ""
        usable = url.lower().startswith(_LINKED) and len(url) <= MAX_SHOWN_URL_CHARS
        self._links.append(_SPACES.sub("%20", url).replace(")", "%29") if usable else "")
        if usable:
            self._mark("[")

    def _link_ends(self) -> None:
        url = self._links.pop() if self._links else ""
        if url:
            self._emit(f"]({url})")

    def _rebase(self, href: str) -> None:
        try:
            url = urljoin(self._base, href.strip())
        except ValueError:
            return
        if url.lower().startswith(_LINKED[:2]) and len(url) <= MAX_SHOWN_URL_CHARS:
            self._base = url

    def _bullet(self) -> str:
        number = self._lists[-1] if self._lists else None
        if number is None:
            return "- "
        self._lists[-1] = number + 1
        return f"{number}. "

    def _fence(self) -> None:
        content, self._pre = "".join(self._pre or ()).strip("\n"), None
        if content.strip():
            longest = max((len(run) for run in re.findall(r"`+", content)), default=0)
            fence = "`" * max(3, longest + 1)
            self._mark(fence)
            self._emit(f"\n{content}\n{fence}")
        self._break(2)

    def _words(self, text: str) -> None:
        words = _SPACES.sub(" ", text)
        if not words:
            return
        if words[0] == " ":
            self._space = True
        stripped = words.strip()
        if stripped:
            self._mark(stripped)
            self._space = words[-1] == " "

    def _break(self, lines: int) -> None:
        if self._in_row:
            self._space = True
        else:
            self._breaks = max(self._breaks, lines)

    def _mark(self, text: str) -> None:
        """Text after whatever break or space is due."""
        if self._breaks:
            if self._parts:
                self._emit("\n" * self._breaks)
            depth = min(max(0, len(self._lists) - 1), MAX_LAYOUT_DEPTH)
            self._emit("> " * min(self._quotes, MAX_LAYOUT_DEPTH) + "  " * depth)
        elif self._space and self._parts and not self._parts[-1].endswith((" ", "[")):
            self._emit(" ")
        self._breaks, self._space = 0, False
        self._emit(text)

    def _emit(self, text: str) -> None:
        if text:
            self._parts.append(text)
            self._size += len(text)
            self.full = self._size > self._most


def _hides(attributes: dict[str, str]) -> bool:
    if not attributes:
        return False
    return (
        "hidden" in attributes
        or attributes.get("aria-hidden", "").strip().lower() == "true"
        or _HIDING.search(attributes.get("style", "")) is not None
    )
