"""Storage of sites in and out of a session; with a real browser in tests/security/test_browser_sessions.py."""

from pathlib import Path
from typing import Any

import pytest

from fakes.session_harness import SessionHarness
from palyra.browser.domain.session_api import Caller, SessionAsk
from palyra.browser.profiles.storage_state import BadStorageState, origin_of_url
from palyra.browser.service.session_lifecycle import end_session
from palyra.browser.service.storage_transfer import import_state
from palyra.egress.domain.refusal import HostNotAllowed
from palyra.ids import Ulid

ANNA = Caller(principal="agent:anna")


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://a.example/x?y#z", "https://a.example"),
        ("http://a.example:8080/", "http://a.example:8080"),
        ("http://[::1]:8080/x", "http://[::1]:8080"),
        *((url, "") for url in ("about:blank", "data:text/html,x", "https://u:p@a.example/", "http://[/", "")),
    ],
)
def test_the_origin_of_an_address(url: str, origin: str) -> None:
    assert origin_of_url(url) == origin


async def test_a_document_is_refused_before_anything_of_it_is_taken_over(tmp_path: Path) -> None:
    harness = SessionHarness(tmp_path)
    session = await harness.maker.open(str(Ulid.new()), ANNA, SessionAsk(hosts=("a.example",)), None)
    opened: list[Any] = []

    async def new_tab() -> Any:
        opened.append(1)

    harness.pages[0].new_tab = new_tab  # type: ignore[attr-defined]
    cookie = b'{"name": "a", "value": "b", "domain": "b.example", "path": "/"}'
    for document, error in (
        (b"{", BadStorageState),
        (b'{"cookies": [%s], "origins": [{"origin": "https://b.example"}]}' % cookie, HostNotAllowed),
    ):
        with pytest.raises(error):
            await import_state(session, document)
    assert opened == [] and harness.processes[0].cdp.sent == []
    await end_session(session, harness.store, discard=True)
