"""HTML pages as text in simple Markdown.

Scripts, styles, comments, navigation and hidden elements are omitted: authors of attacks hide instructions to programs
there. This reduces noise and is not a defence: the result is still untrusted data.
"""

import html
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final, TypeAlias
from urllib.parse import urljoin

import msgspec

from palyra.egress.limits import (
    MAX_ATTRIBUTE_CHARS,
    MAX_ATTRIBUTE_NAME_CHARS,
    MAX_ATTRIBUTES,
    MAX_HTML_CHARS,
    MAX_HTML_TOKENS,
    MAX_LAYOUT_DEPTH,
    MAX_SHOWN_URL_CHARS,
    MAX_TABLE_COLUMNS,
    MAX_TITLE_CHARS,
)
from palyra.executors.untrusted_text import to_one_line

# The standard library's parser takes minutes for a megabyte of ``<!--`` or ``<a ``. Here every unfinished construct
# ends the document, as in a browser, so that the time grows linearly with the length of any page.

_NAME: Final = re.compile(r"[A-Za-z][^\s/>]{0,63}")
_REST_OF_NAME: Final = re.compile(r"[^\s/>]*")
_BETWEEN: Final = re.compile(r"[\s/]*")
_ATTRIBUTE_NAME: Final = re.compile(r"[^\s/>][^\s/>=]*")
_EQUALS: Final = re.compile(r"\s*=\s*")
_UNQUOTED: Final = re.compile(r"[^\s>]*")
# Numbers have bounded length: a longer one is not a character and takes quadratic time to parse.
_REFERENCE: Final = re.compile(r"&(?:#[0-9]{1,8}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});?")
_COMMENT_END: Final = re.compile(r"--!?>")
# Elements whose content is text up to their own end tag. Character references in it count only in the second group.
_RAW: Final = frozenset(("script", "style", "xmp", "iframe", "noembed", "noframes"))
_RAW_WITH_REFERENCES: Final = frozenset(("title", "textarea"))
_RAW_ENDS: Final = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in _RAW | _RAW_WITH_REFERENCES}


class Start(msgspec.Struct, frozen=True):
    name: str
    attributes: dict[str, str]


class End(msgspec.Struct, frozen=True):
    name: str


class Text(msgspec.Struct, frozen=True):
    text: str


Token: TypeAlias = Start | End | Text


def unescape(text: str) -> str:
    """Replace character references in one pass, so that none is replaced twice."""
    return _REFERENCE.sub(lambda found: html.unescape(found.group()), text) if "&" in text else text


def tokenize(page: str) -> Iterator[Token]:
    at, size = 0, len(page)
    while at < size:
        opened = page.find("<", at)
        if opened < 0:
            yield Text(unescape(page[at:]))
            return
        if opened > at:
            yield Text(unescape(page[at:opened]))
        if (name := _NAME.match(page, opened + 1)) is not None:
            tag, at = _start(page, name)
            if tag is None:
                return
            yield tag
            if tag.name == "plaintext":
                yield Text(page[at:])
                return
            if (ending := _RAW_ENDS.get(tag.name)) is not None:
                closed = ending.search(page, at)
                content = page[at:] if closed is None else page[at : closed.start()]
                if content:
                    yield Text(unescape(content) if tag.name in _RAW_WITH_REFERENCES else content)
                at = size if closed is None else closed.start()
        else:
            token, at = _other(page, opened)
            if token is not None:
                yield token


def _other(page: str, opened: int) -> tuple[Token | None, int]:
    """Read an end tag, comment, declaration or plain ``<``. Return its token, if it has one, and the next position."""
    size = len(page)
    if page.startswith("</", opened) and (name := _NAME.match(page, opened + 2)) is not None:
        closed = page.find(">", name.end())
        return (None, size) if closed < 0 else (End(name.group().lower()), closed + 1)
    if page.startswith("<!--", opened):
        # `<!-->` is a whole comment.
        ended = _COMMENT_END.search(page, opened + 2)
        return None, size if ended is None else ended.end()
    if page.startswith(("<!", "<?", "</"), opened):
        closed = page.find(">", opened)
        return None, size if closed < 0 else closed + 1
    return Text("<"), opened + 1


def _start(page: str, name: "re.Match[str]") -> tuple[Start | None, int]:
    """Return the start tag and where it ends; None if the page ends inside it."""
    attributes: dict[str, str] = {}
    at, size = _match(_REST_OF_NAME, page, name.end()), len(page)
    while True:
        at = _match(_BETWEEN, page, at)
        if at >= size:
            return None, size
        if page[at] == ">":
            return Start(name.group().lower(), attributes), at + 1
        begun = at
        at = _match(_ATTRIBUTE_NAME, page, at)
        key, value = page[begun:at], ""
        equals = _EQUALS.match(page, at)
        if equals is not None:
            at = equals.end()
            quote = page[at : at + 1]
            if quote in ('"', "'"):
                ended = page.find(quote, at + 1)
                if ended < 0:
                    return None, size
                value, at = page[at + 1 : ended][:MAX_ATTRIBUTE_CHARS], ended + 1
            else:
                begun, at = at, _match(_UNQUOTED, page, at)
                value = page[begun:at][:MAX_ATTRIBUTE_CHARS]
        if len(attributes) < MAX_ATTRIBUTES and len(key) <= MAX_ATTRIBUTE_NAME_CHARS:
            attributes.setdefault(key.lower(), unescape(value))


def _match(pattern: "re.Pattern[str]", page: str, at: int) -> int:
    found = pattern.match(page, at)
    return at if found is None else found.end()


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
# The start of one of these ends an open element of the same name, which needs no end tag.
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


def render_readable(page: str, base_url: str, most: int) -> Readable:
    """Render at most ``most`` characters. Links are resolved against ``base_url``."""
    cut = len(page) > MAX_HTML_CHARS
    page = page[:MAX_HTML_CHARS]
    found = _render(page, base_url, most, navigation=False)
    if not found.text:
        # A page of navigation only is an index: its links are its text.
        found = _render(page, base_url, most, navigation=True)
    return msgspec.structs.replace(found, truncated=found.truncated or cut)


def _render(page: str, base_url: str, most: int, *, navigation: bool) -> Readable:
    layout = _Layout(base_url, most, navigation=navigation)
    for count, token in enumerate(tokenize(page)):
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
    """Builds text from tokens. A stack of open elements finds the ends of hidden parts, quotes and lists."""

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
            self.title = self.title or to_one_line(text, MAX_TITLE_CHARS)
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
            self._write_text(_HEADINGS[name] + " ")
        elif name in _LISTS:
            self._break(1 if self._lists else 2)
            self._lists.append(1 if name == "ol" else None)
        elif name == "li":
            self._break(1)
            self._write_text(self._bullet())
        elif name == "a":
            self._link_begins(attributes)
        elif name == "br":
            self._break(1)
        elif name == "hr":
            self._break(2)
            self._write_text("---")
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
            self._words(f" [image: {to_one_line(attributes['alt'], MAX_TITLE_CHARS)}] ")
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
                self._write_text(" |")
            self._columns, self._in_row = 0, False
            self._break(1)
        elif name in _BLOCKS or name in ("table", "li"):
            self._break(2 if name in _PARAGRAPHS else 1)

    def _cell_begins(self, name: str) -> None:
        if name == "tr":
            self._in_row, self._columns = False, 0
            self._break(1)
        elif self._columns < MAX_TABLE_COLUMNS:
            self._write_text("| " if not self._columns else " | ")
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
            self._write_text("[")

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
            self._write_text(fence)
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
            self._write_text(stripped)
            self._space = words[-1] == " "

    def _break(self, lines: int) -> None:
        if self._in_row:
            self._space = True
        else:
            self._breaks = max(self._breaks, lines)

    def _write_text(self, text: str) -> None:
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
