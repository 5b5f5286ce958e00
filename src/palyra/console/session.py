"""A web session: a random secret in a cookie, of which the server keeps the hash; and what follows from it."""

import hashlib
import hmac
from http.cookies import CookieError, SimpleCookie
from typing import Self

import msgspec

from palyra.console.errors import CsrfMissing, NotLoggedIn
from palyra.console.limits import SESSION_IDLE_MS, SESSION_LIFE_MS, SESSION_NOTE_MS
from palyra.secret import Secret

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
