"""The secret of a session, what follows from it, and when it is over."""

import pytest

from palyra.secret import Secret
from palyra.server.console.errors import CsrfMissing, NotLoggedIn
from palyra.server.console.limits import SESSION_IDLE_MS, SESSION_LIFE_MS, SESSION_NOTE_MS
from palyra.server.console.security import COOKIE, ConsoleSession, SessionSecret, ended_cookie

SECRET = SessionSecret(Secret("s" * 43))


def test_a_cookie_is_read_back_and_says_how_it_may_travel() -> None:
    sent = SECRET.cookie(secure=False)
    assert sent == f"{COOKIE}={'s' * 43}; Path=/; HttpOnly; SameSite=Strict"
    assert SECRET.cookie(secure=True).endswith("; Secure")
    assert SessionSecret.from_cookies(f"other=1; {sent.partition(';')[0]}; more=2").digest() == SECRET.digest()
    assert "Max-Age=0" in ended_cookie()


@pytest.mark.parametrize("header", ["", "other=1", f"{COOKIE}=", f"{COOKIE}=short", f"{COOKIE}={'x' * 99}", "=;=", '"'])
def test_what_is_no_secret_of_ours_is_nobody(header: str) -> None:
    with pytest.raises(NotLoggedIn):
        SessionSecret.from_cookies(header)


def test_the_token_of_a_page_belongs_to_one_session() -> None:
    SECRET.check_csrf(SECRET.csrf())
    for wrong in (None, "", SECRET.csrf()[:-1], SessionSecret(Secret("t" * 43)).csrf()):
        with pytest.raises(CsrfMissing):
            SECRET.check_csrf(wrong)


@pytest.mark.promise("P-console-guarded")
def test_a_session_slides_and_still_ends() -> None:
    session = ConsoleSession(id="s", token_id="t", principal="user:a", created_ms=0, used_ms=0)
    session.check(SESSION_IDLE_MS - 1)
    with pytest.raises(NotLoggedIn):
        session.check(SESSION_IDLE_MS)
    assert session.needs_note(SESSION_NOTE_MS) and not session.needs_note(SESSION_NOTE_MS - 1)
    busy = ConsoleSession(id="s", token_id="t", principal="user:a", created_ms=0, used_ms=SESSION_LIFE_MS - 1)
    with pytest.raises(NotLoggedIn):
        busy.check(SESSION_LIFE_MS)
