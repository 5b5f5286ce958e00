"""What a session wanted to reach and was refused, newest last and bounded. Pure."""

from collections import deque
from typing import Final

import msgspec

from palyra.browser.page_address import shown_address
from palyra.browser.page_port import Redact
from palyra.errors import PalyraError

# A page may try without end: what is older is counted only.
MAX_REFUSALS: Final = 256


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """``frame`` is the frame or worker that asked; ``document`` whether it wanted to go there itself."""

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
        shown = shown_address(self._redact(url))
        self._kept.append(Refusal(url=shown, code=error.code, frame=frame, document=document, error=error))

    def since(self, mark: int) -> tuple[Refusal, ...]:
        """Those that are left of everything after the first ``mark``."""
        skipped = max(0, mark - (self.total - len(self._kept)))
        return tuple(self._kept)[skipped:]

    def of_document(self, frame: str, mark: int) -> PalyraError | None:
        """Why a frame may not go where it wanted to."""
        found = [each.error for each in self.since(mark) if each.document and each.frame == frame]
        return found[-1] if found else None
