"""Requests to the browser daemon besides actions, and its answers: the values on both ends of its socket."""

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from palyra.browser.domain.action import ActionOutcome, MouseButton, TabView
from palyra.errors import InvalidInput, PalyraError

# Every browser and the wire can hold it, and no page is larger.
MAX_PIXELS: Final = 2**31 - 1
Pixels = Annotated[int, msgspec.Meta(ge=-MAX_PIXELS, le=MAX_PIXELS)]


class LiveFrame(msgspec.Struct, frozen=True, kw_only=True):
    """One picture of the active tab. Input is given in the page's own pixels, ``width`` by ``height``."""

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


PROTOCOL_VERSION: Final = 2


class BadRequest(InvalidInput):
    code = "browser.bad_request"
    hint = "the reference of the browser daemon lists what each request needs"


class NoSuchSession(InvalidInput):
    """A session of another principal looks the same."""

    code = "browser.unknown_session"
    hint = "`palyra browser list` lists the sessions there are; one that reached its end is gone"
    http_status = 404


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """On whose behalf a request is made. ``operator`` acts for any principal's sessions and is on record."""

    principal: str = ""
    run_id: str = ""
    call_id: str = ""
    operator: str = ""


class SessionAsk(msgspec.Struct, frozen=True, kw_only=True):
    """The wanted session. palyrad decided what it may reach; the daemon only enforces it."""

    profile_id: str = ""
    budget: dict[str, int] = {}
    hosts: tuple[str, ...] = ()
    # Of ``hosts``, those with a port whose addresses may be private or this machine's.
    private_targets: tuple[str, ...] = ()
    any_public_host: bool = False
    allow_evaluate: bool = False
    label: str = ""
    viewport_width: int = 0
    viewport_height: int = 0


class SessionState(StrEnum):
    OPEN = "open"
    TAKEN_OVER = "taken_over"
    CLOSING = "closing"


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """``ends_ms`` is the latest end, ``idle_ends_ms`` the end if nobody uses it from now on."""

    session_id: str
    principal: str
    state: SessionState
    created_ms: int
    ends_ms: int
    idle_ends_ms: int
    label: str = ""
    profile_id: str = ""
    persistent: bool = False
    budget: dict[str, int] = {}
    spent: dict[str, int] = {}
    hosts: tuple[str, ...] = ()
    private_targets: tuple[str, ...] = ()
    any_public_host: bool = False
    allow_evaluate: bool = False
    tabs: tuple[TabView, ...] = ()
    fences_json: bytes = b""
    fences_waived: tuple[str, ...] = ()
    product: str = ""
    operator: str = ""


class CloseReport(msgspec.Struct, frozen=True, kw_only=True):
    """``problem_code`` says why a profile that should have been saved was not."""

    saved: bool = False
    revision: int = 0
    problem_code: str = ""
    problem_message: str = ""


class ActReport(msgspec.Struct, frozen=True, kw_only=True):
    """``outcomes`` of the actions that succeeded. ``problem`` is the next one's error; the rest was not tried."""

    outcomes: tuple[ActionOutcome, ...] = ()
    problem: PalyraError | None = None
    picture: ActionOutcome | None = None


class SessionEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a session, numbered from 1 without gaps. ``code`` is empty for a success."""

    number: int
    at_ms: int
    kind: str
    code: str = ""
    text: str = ""
    tab: str = ""
    actor: str = ""
    run_id: str = ""
    call_id: str = ""


class CookieView(msgspec.Struct, frozen=True, kw_only=True, rename={"http_only": "httpOnly", "same_site": "sameSite"}):
    """A cookie without its value. ``expires`` -1 ends with the browser."""

    name: str
    domain: str
    path: str = "/"
    expires: float = -1.0
    http_only: bool = False
    secure: bool = False
    same_site: str = ""


class ProfileView(msgspec.Struct, frozen=True, kw_only=True):
    """``session_id`` is the session that uses it now: there is at most one."""

    profile_id: str
    principal: str
    name: str
    colour: str
    persistence: bool
    private: bool
    created_ms: int
    updated_ms: int
    revision: int = 0
    size: int = 0
    damaged: str = ""
    session_id: str = ""


class ProfilesHead(msgspec.Struct, frozen=True, kw_only=True):
    """The newest change of the profiles. No change of another copy of them has its ``mark``.

    ``rolled_back``: the profiles do not follow the last change that palyrad recorded.
    """

    generation: int = 0
    mark: str = ""
    rolled_back: bool = False


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    cookies: int = 0
    origins: int = 0
    # Origins whose databases were in the document and cannot be taken over.
    left_out: tuple[str, ...] = ()


class WatchAsk(msgspec.Struct, frozen=True, kw_only=True):
    """Events with a greater number come first, then new ones. Without ``frames`` there are only events."""

    events_after: int = 0
    frames: bool = True


class HealthView(msgspec.Struct, frozen=True, kw_only=True):
    protocol_version: int
    software_version: str
    status: str
    sessions: int = 0
    ready_browsers: int = 0
    product: str = ""


# The events of a session, in order, for its owner and its watchers. They are kept in memory and bounded.

# The actions of a whole session at its default ceiling, with the events between them.
MAX_EVENTS: Final = 1_024
MAX_TEXT_CHARS: Final = 512
# A page that is refused for ever gets this many events. The guard counts the rest.
MAX_REFUSALS: Final = 256

OPENED: Final = "browser.session_opened"
CLOSED: Final = "browser.session_closed"
FAILED: Final = "browser.session_failed"
ACTED: Final = "browser.acted"
OBSERVED: Final = "browser.observed"
REFUSED: Final = "browser.egress_refused"
DOWNLOADED: Final = "browser.downloaded"
DOWNLOAD_RELEASED: Final = "browser.download_released"
DOWNLOAD_DELETED: Final = "browser.download_deleted"
TAKEN_OVER: Final = "browser.taken_over"
HANDED_BACK: Final = "browser.handed_back"
OPERATED: Final = "browser.operated"
LOOKED_AT: Final = "browser.looked_at"
STATE_EXPORTED: Final = "browser.state_exported"
STATE_IMPORTED: Final = "browser.state_imported"
NOT_RESTORED: Final = "browser.not_restored"


class SessionLog:
    def __init__(self, now_ms: Callable[[], int], redact: Callable[[str], str]) -> None:
        self._now_ms = now_ms
        self._redact = redact
        self._kept: deque[SessionEvent] = deque(maxlen=MAX_EVENTS)
        self._next = 1
        self._refusals = 0
        self._listeners: list[Callable[[SessionEvent], None]] = []

    def add(self, kind: str, *, text: str = "", code: str = "", tab: str = "", caller: Caller | None = None) -> None:
        if kind == REFUSED:
            self._refusals += 1
            if self._refusals > MAX_REFUSALS:
                return
        caller = caller or Caller()
        event = SessionEvent(
            number=self._next,
            at_ms=self._now_ms(),
            kind=kind,
            code=code,
            text=self._redact(text)[:MAX_TEXT_CHARS],
            tab=tab,
            actor=caller.operator or caller.principal,
            run_id=caller.run_id,
            call_id=caller.call_id,
        )
        self._next += 1
        self._kept.append(event)
        for on_event in tuple(self._listeners):
            on_event(event)

    def after(self, number: int) -> tuple[SessionEvent, ...]:
        return tuple(event for event in self._kept if event.number > number)

    def subscribe(self, on_event: Callable[[SessionEvent], None]) -> Callable[[], None]:
        self._listeners.append(on_event)
        return lambda: self._listeners.remove(on_event)
