"""Protection of the console: forged requests, the login throttle, the origin check, and the session's secret."""

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
# Characters of an address that a stranger wrote: enough to identify the page.
MAX_PATH_CHARS = 128


class Forgeries:
    """Counts forged requests. The journal gets one entry a minute for each code, with the number since the last one."""

    def __init__(self, store: "ApiStore", clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._counted: dict[str, int] = {}
        self._recorded: dict[str, float] = {}

    async def note(self, code: str, method: str, path: str, site: str) -> None:
        """Count a request, and record the count if an entry is due. A failed entry keeps the count.

        ``site`` is the origin, or the host name, that the request states.
        """
        self._counted[code] = self._counted.get(code, 0) + 1
        now = self._clock.monotonic()
        if now - self._recorded.get(code, float("-inf")) < FORGERIES_RECORDED_EVERY_SECONDS:
            return
        self._recorded[code] = now
        count = self._counted.pop(code)
        facts = {"method": method, "path": path[:MAX_PATH_CHARS], "site": site[:MAX_PATH_CHARS]}
        event = NewEvent(kind="console.request_refused", actor=ACTOR, payload={"code": code, **facts, "count": count})
        try:
            await self._store.transact(lambda tx: tx.append(event))
        except (Unavailable, LimitExceeded):
            self._counted[code] = self._counted.get(code, 0) + count


_NAMED = re.compile(r"plr_([0-7][0-9A-HJKMNP-TV-Z]{25})_")


class LoginThrottle:
    """Counts wrong tokens, by the token that each names and all together. A right token is never refused."""

    def __init__(self) -> None:
        self._wrong: deque[tuple[float, str]] = deque()

    def count_wrong(self, raw: str, now: float) -> None:
        """Count a wrong token. Raise if there were too many in the last minute."""
        while self._wrong and now - self._wrong[0][0] >= LOGIN_WINDOW_SECONDS:
            self._wrong.popleft()
        name = _name_of(raw)
        of_this = sum(1 for _, other in self._wrong if other == name)
        if of_this >= MAX_WRONG_LOGINS_PER_TOKEN or len(self._wrong) >= MAX_WRONG_LOGINS:
            raise TooManyLogins("too many wrong tokens were tried", retry_after_seconds=int(LOGIN_WINDOW_SECONDS))
        self._wrong.append((now, name))


def _name_of(raw: str) -> str:
    """Return the token's public part. All tokens without one count as the same."""
    match = _NAMED.match(raw)
    return match[1] if match else ""


SAFE_METHODS = frozenset(("GET", "HEAD"))
_OURS = frozenset(("same-origin", "none"))


def check_origin(method: str, origin: str, headers: Mapping[str, str]) -> None:
    """Refuse requests of other sites and of other ports. ``origin`` is the console's own, from the Host header.

    A write has to name this origin. A read may name none, and a link of another site may lead here: the page then
    opens in its own window, where the other site cannot read it.
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


COOKIE = "palyra_session"
CSRF_HEADER = "palyra-csrf"
_CSRF_DOMAIN = b"palyra.console.csrf.v1"
_SHORTEST = 40
_LONGEST = 64


class SessionSecret(msgspec.Struct, frozen=True):
    """The random secret in the browser's cookie. The server stores its hash only."""

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
        """Return the CSRF token of this session. Only its own pages can read it."""
        return hmac.new(self.value.reveal().encode(), _CSRF_DOMAIN, hashlib.sha256).hexdigest()

    def check_csrf(self, given: str | None) -> None:
        if given is None or not Secret(self.csrf()).matches(given):
            raise CsrfMissing("the request does not carry the page's own token")

    def cookie(self, *, secure: bool) -> str:
        """Return the Set-Cookie header. On plain loopback ``secure`` is off, or the browser sends no cookie back."""
        parts = [f"{COOKIE}={self.value.reveal()}", "Path=/", "HttpOnly", "SameSite=Strict"]
        return "; ".join([*parts, "Secure"] if secure else parts)


def ended_cookie() -> str:
    return f"{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"


class ConsoleSession(msgspec.Struct, frozen=True, kw_only=True):
    """``id`` names the session in the journal, and is not a part of the secret."""

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
