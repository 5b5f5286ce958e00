"""What a person who watches a session sees, and what one who took it over may do."""

from enum import StrEnum
from typing import Annotated, Final

import msgspec

from palyra.browser.action import MouseButton

# What every browser and the wire can hold; no page is larger.
MAX_PIXELS: Final = 2**31 - 1
Pixels = Annotated[int, msgspec.Meta(ge=-MAX_PIXELS, le=MAX_PIXELS)]


class LiveFrame(msgspec.Struct, frozen=True, kw_only=True):
    """One picture of the active tab. ``width`` and ``height`` are the page's own pixels: input is given in these."""

    tab: str
    url: str
    picture: bytes
    width: int
    height: int
    at_ms: int
    media_type: str = "image/jpeg"


class OperatorDoes(StrEnum):
    CLICK = "click"
    MOVE = "move"
    SCROLL = "scroll"
    TYPE = "type"
    KEY = "key"


class OperatorInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``x`` and ``y`` for the pointer, ``dx`` and ``dy`` for scrolling, ``text`` for typing, ``key`` as in `Press`."""

    does: OperatorDoes
    x: Pixels = 0
    y: Pixels = 0
    dx: Pixels = 0
    dy: Pixels = 0
    button: MouseButton = MouseButton.LEFT
    text: str = ""
    key: str = ""
