"""HTML cut into tags and text in one pass.

The standard library's parser takes minutes for a megabyte of ``<!--`` or ``<a ``. Here every unfinished construct ends
the document, as it does in a browser, so that time grows with length alone whatever the page is.
"""

import html
import re
from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from palyra.fetch.limits import MAX_ATTRIBUTE_CHARS, MAX_ATTRIBUTES

_NAME: Final = re.compile(r"[A-Za-z][^\s/>]{0,63}")
_REST_OF_NAME: Final = re.compile(r"[^\s/>]*")
_BETWEEN: Final = re.compile(r"[\s/]*")
_ATTRIBUTE_NAME: Final = re.compile(r"[^\s/>][^\s/>=]*")
_EQUALS: Final = re.compile(r"\s*=\s*")
_UNQUOTED: Final = re.compile(r"[^\s>]*")
# Numbers of bounded length: a longer one is no character and takes a parser quadratic time.
_REFERENCE: Final = re.compile(r"&(?:#[0-9]{1,8}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});?")
_COMMENT_END: Final = re.compile(r"--!?>")
# Elements whose content is text up to their own end tag. The second group keeps references in it.
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


def unescaped(text: str) -> str:
    """Character references replaced, each looked at once."""
    return _REFERENCE.sub(lambda found: html.unescape(found.group()), text) if "&" in text else text


def tokens(page: str) -> Iterator[Token]:
    at, size = 0, len(page)
    while at < size:
        opened = page.find("<", at)
        if opened < 0:
            yield Text(unescaped(page[at:]))
            return
        if opened > at:
            yield Text(unescaped(page[at:opened]))
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
                    yield Text(unescaped(content) if tag.name in _RAW_WITH_REFERENCES else content)
                at = size if closed is None else closed.start()
        else:
            token, at = _other(page, opened)
            if token is not None:
                yield token


def _other(page: str, opened: int) -> tuple[Token | None, int]:
    """An end tag, a comment or declaration, or a ``<`` that is only itself; and where to go on."""
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
    """The start tag and where it ends; None when the page ends in it."""
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
            if quote in ('"', "'") and quote:
                ended = page.find(quote, at + 1)
                if ended < 0:
                    return None, size
                value, at = page[at + 1 : ended][:MAX_ATTRIBUTE_CHARS], ended + 1
            else:
                begun, at = at, _match(_UNQUOTED, page, at)
                value = page[begun:at][:MAX_ATTRIBUTE_CHARS]
        if len(attributes) < MAX_ATTRIBUTES and len(key) <= MAX_ATTRIBUTES:
            attributes.setdefault(key.lower(), unescaped(value))


def _match(pattern: "re.Pattern[str]", page: str, at: int) -> int:
    found = pattern.match(page, at)
    return at if found is None else found.end()
