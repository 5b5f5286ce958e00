"""Playwright's storage state, read strictly and written as it was."""

import json
from typing import Any

import pytest

from palyra.browser.profiles.storage_state import (
    MAX_COOKIES,
    MAX_DOCUMENT_BYTES,
    BadStorageState,
    StorageStateTooLarge,
    from_cdp,
    read_storage_state,
    to_cdp,
    write_storage_state,
)

COOKIE = {
    "name": "sid",
    "value": "s3cret",
    "domain": ".shop.test",
    "path": "/",
    "expires": 1900000000.5,
    "httpOnly": True,
    "secure": True,
    "sameSite": "None",
}
ORIGIN = {"origin": "https://shop.test:8443", "localStorage": [{"name": "token", "value": "t0ken"}]}
DOCUMENT = {"cookies": [COOKIE, {**COOKIE, "name": "here", "expires": -1, "sameSite": "Lax"}], "origins": [ORIGIN]}


def read(**changes: Any) -> Any:
    return read_storage_state(json.dumps({**DOCUMENT, **changes}).encode())


def test_there_and_back() -> None:
    state = read()
    assert json.loads(write_storage_state(state)) == DOCUMENT
    assert read_storage_state(write_storage_state(state)) == state


def test_values_are_not_shown_by_accident() -> None:
    assert "s3cret" not in repr(read()) and "t0ken" not in repr(read())


def test_cookies_to_and_from_the_browser() -> None:
    lasting, session = read().cookies
    assert to_cdp(lasting)["expires"] == 1900000000.5
    assert "expires" not in to_cdp(session)
    for cookie in (lasting, session):
        shown = {**to_cdp(cookie), "size": 9, "session": cookie.expires == -1, "priority": "Medium"}
        assert from_cdp(shown) == cookie
    assert from_cdp({"name": "a", "value": "", "domain": "x.test", "path": "/", "expires": -1}).same_site == "Lax"


def test_partitioned_cookies_stay_so() -> None:
    cookie = read(cookies=[{**COOKIE, "partitionKey": "https://top.test"}]).cookies[0]
    assert to_cdp(cookie)["partitionKey"]["topLevelSite"] == "https://top.test"
    assert from_cdp(to_cdp(cookie)) == cookie
    assert (
        json.loads(write_storage_state(read(cookies=[{**COOKIE, "partitionKey": "https://top.test"}])))["cookies"][0][
            "partitionKey"
        ]
        == "https://top.test"
    )


def test_what_is_not_taken_over_is_told() -> None:
    assert read(origins=[{**ORIGIN, "indexedDB": [{"name": "db"}]}]).left_out == ("https://shop.test:8443",)
    assert read().left_out == ()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{",
        b'{"cookies": [], "cookies": []}',
        b'{"cookies": {}}',
        b'{"unknown": 1}',
        b'{"cookies": [{"name": "a"}]}',
        b"\xff",
    ],
)
def test_other_documents(raw: bytes) -> None:
    with pytest.raises(BadStorageState):
        read_storage_state(raw)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "a\r\nSet-Cookie: b"},
        {"value": "a;b"},
        {"value": "x" * 5_000},
        {"path": "relative"},
        {"domain": ""},
        {"expires": -2},
        {"expires": "tomorrow"},
        {"sameSite": "none"},
        {"sameSite": "None", "secure": False},
        {"httpOnly": 1},
    ],
)
def test_cookies_no_browser_has(change: dict[str, Any]) -> None:
    with pytest.raises(BadStorageState) as refusal:
        read(cookies=[{**COOKIE, **change}])
    assert "s3cret" not in refusal.value.message


@pytest.mark.parametrize(
    "origin",
    ["shop.test", "https://shop.test/", "https://shop.test/path", "file:///etc", "https://u:p@shop.test", "", "https://",
     "chrome://settings", "https://shop.test:99999", "HTTPS://SHOP.TEST", "https://[::1"],
)  # fmt: skip
def test_what_is_no_origin(origin: str) -> None:
    with pytest.raises(BadStorageState):
        read(origins=[{"origin": origin, "localStorage": []}])


def test_limits() -> None:
    with pytest.raises(StorageStateTooLarge):
        read_storage_state(b" " * (MAX_DOCUMENT_BYTES + 1))
    with pytest.raises(BadStorageState):
        read(cookies=[COOKIE] * (MAX_COOKIES + 1))
