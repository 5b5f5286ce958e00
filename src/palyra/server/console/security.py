"""Requests that no page of ours sent: counted, and on record now and then, so that nobody fills the journal by them."""

import hashlib
import hmac
import re
from collections import deque
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Self

import msgspec

from palyra.clock import Clock
from palyra.errors import LimitExceeded, PalyraError, Unavailable
from palyra.secret import Secret
from palyra.server.console.errors import CrossOrigin, CsrfMissing, NotLoggedIn, TooManyLogins
from palyra.server.console.limits import (
    FORGERIES_RECORDED_EVERY_SECONDS,
    LOGIN_WINDOW_SECONDS,
    MAX_WRONG_LOGINS,
    MAX_WRONG_LOGINS_PER_TOKEN,
    SESSION_IDLE_MS,
    SESSION_LIFE_MS,
    SESSION_NOTE_MS,
)
from palyra.store.event import NewEvent

if TYPE_CHECKING:
    from palyra.server.context import ApiStore

ACTOR = "palyrad"
FORGED: tuple[type[PalyraError], ...] = (CrossOrigin, CsrfMissing)
# Of an address that a stranger wrote, as much as tells which page was meant, and whose page it was.
MAX_PATH_CHARS = 128


class Forgeries:
    """One entry a minute for each reason, with how many there were since the one before it."""

    def __init__(self, store: "ApiStore", clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._counted: dict[str, int] = {}
        self._recorded: dict[str, float] = {}

    async def note(self, code: str, method: str, path: str, site: str) -> None:
        """``site`` is where the request came from or was meant for, as it says itself. A journal that cannot be written
        now leaves them counted."""
        self._counted[code] = self._counted.get(code, 0) + 1
        now = self._clock.monotonic()
        if now - self._recorded.get(code, float("-inf")) < FORGERIES_RECORDED_EVERY_SECONDS:
            return
        self._recorded[code] = now
        count = self._counted.pop(code)
        told = {"method": method, "path": path[:MAX_PATH_CHARS], "site": site[:MAX_PATH_CHARS]}
        event = NewEvent(kind="console.request_refused", actor=ACTOR, payload={"code": code, **told, "count": count})
        try:
            await self._store.transact(lambda tx: tx.append(event))
        except (Unavailable, LimitExceeded):
            self._counted[code] = self._counted.get(code, 0) + count


# How often a wrong token may be tried. Guessing one is hopeless anyway: this bounds what trying costs.
#
# Wrong tries count against the token they name, so that whoever sends nonsense does not lock out the holder of a good
# one; and against everybody together, so that naming many tokens gains nothing.

_NAMED = re.compile(r"plr_([0-7][0-9A-HJKMNP-TV-Z]{25})_")


class LoginThrottle:
    def __init__(self) -> None:
        self._wrong: deque[tuple[float, str]] = deque()

    def check(self, raw: str, now: float) -> None:
        """Raises when this one is not to be looked at."""
        self._forget(now)
        name = _name_of(raw)
        of_this = sum(1 for _, other in self._wrong if other == name)
        if of_this >= MAX_WRONG_LOGINS_PER_TOKEN or len(self._wrong) >= MAX_WRONG_LOGINS:
            raise TooManyLogins("too many wrong tokens were tried", retry_after_seconds=int(LOGIN_WINDOW_SECONDS))

    def wrong(self, raw: str, now: float) -> None:
        self._forget(now)
        if len(self._wrong) < MAX_WRONG_LOGINS:
            self._wrong.append((now, _name_of(raw)))

    def _forget(self, now: float) -> None:
        while self._wrong and now - self._wrong[0][0] >= LOGIN_WINDOW_SECONDS:
            self._wrong.popleft()


def _name_of(raw: str) -> str:
    """The token's public part. What has none counts as one and the same."""
    match = _NAMED.match(raw)
    return match[1] if match else ""


# Which page sent a request, as far as a browser tells. Another site, or another port of this machine, gets nothing.

SAFE_METHODS = frozenset(("GET", "HEAD"))
_OURS = frozenset(("same-origin", "none"))


def check_origin(method: str, origin: str, headers: Mapping[str, str]) -> None:
    """``origin`` is the console's own, as the request names it in its Host.

    A write has to name this origin itself. A read may come without one, and a link from elsewhere may lead here: a
    page is then opened in its own window, where nobody else reads it.
    """
    named = headers.get("origin")
    if named is not None and named != origin:
        raise CrossOrigin("another page sent this request")
    if method not in SAFE_METHODS:
        if named is None:
            raise CrossOrigin("the request does not say which page sent it")
        return
    site = headers.get("sec-fetch-site")
    if site is not None and site not in _OURS:
        opened = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        if not opened:
            raise CrossOrigin("another page asked for this")


# A web session: a random secret in a cookie, of which the server keeps the hash; and what follows from it.

COOKIE = "palyra_session"
CSRF_HEADER = "palyra-csrf"
_CSRF_DOMAIN = b"palyra.console.csrf.v1"
_SHORTEST = 40
_LONGEST = 64


class SessionSecret(msgspec.Struct, frozen=True):
    """What the browser holds. Nothing of it but its hash is stored anywhere."""

    value: Secret

    @classmethod
    def from_cookies(cls, header: str) -> Self:
        try:
            found = SimpleCookie(header).get(COOKIE)
        except CookieError:
            found = None
        if found is None or not _SHORTEST <= len(found.value) <= _LONGEST or not found.value.isascii():
            raise NotLoggedIn("this needs a login")
        return cls(Secret(found.value))

    def digest(self) -> str:
        return hashlib.sha256(self.value.reveal().encode()).hexdigest()

    def csrf(self) -> str:
        """Bound to this session and known to nobody who cannot read its pages."""
        return hmac.new(self.value.reveal().encode(), _CSRF_DOMAIN, hashlib.sha256).hexdigest()

    def check_csrf(self, given: str | None) -> None:
        if given is None or not Secret(self.csrf()).matches(given):
            raise CsrfMissing("the request does not carry the page's own token")

    def cookie(self, *, secure: bool) -> str:
        """``secure`` away from plain loopback, where a browser would not send it back otherwise."""
        parts = [f"{COOKIE}={self.value.reveal()}", "Path=/", "HttpOnly", "SameSite=Strict"]
        return "; ".join([*parts, "Secure"] if secure else parts)


def ended_cookie() -> str:
    return f"{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"


class ConsoleSession(msgspec.Struct, frozen=True, kw_only=True):
    """``id`` names the session in the journal; it is no part of the secret."""

    id: str
    token_id: str
    principal: str
    created_ms: int
    used_ms: int

    def expires_ms(self) -> int:
        return min(self.used_ms + SESSION_IDLE_MS, self.created_ms + SESSION_LIFE_MS)

    def check(self, now_ms: int) -> None:
        if now_ms >= self.expires_ms():
            raise NotLoggedIn("the session is over")

    def needs_note(self, now_ms: int) -> bool:
        return now_ms - self.used_ms >= SESSION_NOTE_MS
