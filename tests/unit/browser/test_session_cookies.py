"""Cookies of a running browser: those it would forget are kept, and one that no document may hold costs no other."""

from fakes.session_harness import StandInCdp
from palyra.browser.profiles.storage_state import read_storage_state
from palyra.browser.service.storage_transfer import all_cookies, put_cookies, read_session_cookies, restore


def cookie(name: str, value: str = "v", **more: object) -> dict[str, object]:
    return {"name": name, "value": value, "domain": "a.example", "path": "/", "session": True, **more}


async def test_only_what_ends_with_the_browser_is_kept_and_goes_back_as_it_was() -> None:
    cdp = StandInCdp()
    cdp.cookies = [
        cookie("sid", httpOnly=True, sameSite="Strict"),
        cookie("lasting", session=False, expires=4e9),
        cookie("odd", "a\x01b"),
    ]
    kept = await read_session_cookies(cdp)
    assert [each.name for each in read_storage_state(kept).cookies] == ["sid"]
    assert await restore(cdp, kept) == 1
    method, params = cdp.sent[-1]
    assert method == "Storage.setCookies"
    (back,) = params["cookies"]
    assert (back["name"], back["value"], back["httpOnly"], back["sameSite"]) == ("sid", "v", True, "Strict")
    assert "expires" not in back


async def test_without_any_nothing_is_kept_or_sent() -> None:
    cdp = StandInCdp()
    assert await read_session_cookies(cdp) == b""
    assert await restore(cdp, b"") == 0 and await put_cookies(cdp, ()) == 0
    assert await all_cookies(cdp) == ()
    assert {method for method, _ in cdp.sent} == {"Storage.getCookies"}
