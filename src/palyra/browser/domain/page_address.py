"""The addresses that a tab, a frame and a page's own requests may have, by their scheme.

The judge decides about hosts. Chromium itself would open `file:` and `view-source:`, so this list is the barrier.
Chromium reports addresses in its canonical form; those of a caller are not canonical and are parsed strictly.
"""

import re
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from palyra.browser.domain.page_errors import BadAddress, SchemeRefused
from palyra.errors import PalyraError
from palyra.visible_text import is_visible

BLANK: Final = "about:blank"
MAX_ADDRESS_CHARS: Final = 8_192
_SHOWN_CHARS: Final = 512
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*):", re.IGNORECASE)
# Chromium drops some of these from an address before it reads the rest; what is judged must be what is opened.
_NEVER: Final = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\ufeff\\]")
_WEB: Final = frozenset(("http", "https"))
_SOCKETS: Final = frozenset(("ws", "wss"))
_INSIDE: Final = frozenset(("data", "blob"))
_USERINFO: Final = re.compile(r"^([a-z][a-z0-9+.-]*://)[^/?#@]*@", re.IGNORECASE)

# Removes every known secret from a text. Every text of a page passes through it.
Redact = Callable[[str], str]


class RequestJudge(Protocol):
    """Decides whether a session may go somewhere. The guard judges each connection again, with the addresses."""

    async def judge_document(self, url: str) -> None: ...

    def judge_request(self, url: str) -> None: ...

    def judge_content(self, url: str, method: str, headers: tuple[tuple[str, str], ...]) -> None:
        """Raise unless the rules of the host, if it has any, cover this method, path and headers."""
        ...


class AddressKind(StrEnum):
    """The judge decides about ``web``. ``inside`` is content that a page made itself, which no tab may show."""

    WEB = "web"
    BLANK = "blank"
    INSIDE = "inside"
    FORBIDDEN = "forbidden"


def kind_of(url: str) -> AddressKind:
    found = _SCHEME.match(url)
    scheme = found.group(1).lower() if found else ""
    if scheme in _WEB or scheme in _SOCKETS:
        return AddressKind.WEB
    if scheme in _INSIDE:
        return AddressKind.INSIDE
    if scheme == "about" and re.split(r"[?#]", url, maxsplit=1)[0].lower() in (BLANK, "about:srcdoc"):
        return AddressKind.BLANK
    return AddressKind.FORBIDDEN


def require_tab_address(url: str) -> AddressKind:
    """Return the kind of an address that a tab may show: ``web`` or ``blank``."""
    if not url or len(url) > MAX_ADDRESS_CHARS or _NEVER.search(url):
        raise BadAddress(f"{render_address(url)!r} is not an address", url=render_address(url))
    kind = kind_of(url)
    if kind is AddressKind.FORBIDDEN and not _SCHEME.match(url):
        raise BadAddress(f"{render_address(url)!r} has no scheme", url=render_address(url))
    if kind in (AddressKind.INSIDE, AddressKind.FORBIDDEN) or _SOCKETS & {url.split(":", 1)[0].lower()}:
        raise SchemeRefused(f"a tab may not go to {render_address(url)!r}", url=render_address(url))
    return kind


def render_address(url: str) -> str:
    text = _USERINFO.sub(r"\1", url)
    text = "".join(char if is_visible(char) else "�" for char in text)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"


def origin_of(url: str) -> str:
    found = re.match(r"(https?://[^/?#@]+)(?:[/?#]|$)", url, re.IGNORECASE)
    return found.group(1).lower() if found else ""


# A page may try without end. Older refusals are only counted.
MAX_REFUSALS: Final = 256


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """``frame`` is the frame or worker that made the request. ``document``: it wanted to navigate there itself."""

    url: str
    code: str
    frame: str
    document: bool
    error: PalyraError

    @property
    def line(self) -> str:
        return f"{self.url} {self.code}"


class Refusals:
    def __init__(self, redact: Redact) -> None:
        self._redact = redact
        self._kept: deque[Refusal] = deque(maxlen=MAX_REFUSALS)
        self.total = 0

    def add(self, url: str, error: PalyraError, *, frame: str = "", document: bool = False) -> None:
        self.total += 1
        shown = render_address(self._redact(url))
        self._kept.append(Refusal(url=shown, code=error.code, frame=frame, document=document, error=error))

    def since(self, mark: int) -> tuple[Refusal, ...]:
        skipped = max(0, mark - (self.total - len(self._kept)))
        return tuple(self._kept)[skipped:]

    def of_document(self, frame: str, mark: int) -> PalyraError | None:
        found = [each.error for each in self.since(mark) if each.document and each.frame == frame]
        return found[-1] if found else None
