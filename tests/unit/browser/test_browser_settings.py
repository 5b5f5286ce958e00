"""The section browser: what is refused when the settings are read, and where a secret may be typed."""

from typing import Any

import msgspec
import pytest

from palyra.browser.settings import BadTypingBinding, BrowserSettings, TypingBinding
from palyra.config.setting_types import InvalidSetting
from palyra.daemon.settings import Settings, check_together


def settings(**sections: Any) -> Settings:
    return msgspec.convert(sections, Settings)


def test_a_host_of_the_browser_must_be_one_that_anything_may_reach() -> None:
    with pytest.raises(InvalidSetting, match=r"browser\.allowed_hosts: egress\.allowed_hosts does not allow all of b"):
        check_together(settings(egress={"allowed_hosts": ["a.test"]}, browser={"allowed_hosts": ["a.test", "b.test"]}))
    check_together(settings(egress={"allowed_hosts": ["*.a.test"]}, browser={"allowed_hosts": ["x.a.test"]}))


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        ("shop.test", "no origin"),
        ("ftp://shop.test", "no origin"),
        ("https://shop.test/login", "is spelled https://shop.test"),
        ("https://shop.test:443", "is spelled https://shop.test"),
        ("https://anna@shop.test", "no origin"),
        ("HTTPS://shop.test", "is spelled https://shop.test"),
    ],
)
def test_an_origin_has_one_spelling(origin: str, words: str) -> None:
    with pytest.raises(BadTypingBinding, match=words):
        TypingBinding(secret_ref="global/shop", origins=(origin,)).check()


def test_a_binding_names_a_secret_and_where_it_may_be_typed() -> None:
    with pytest.raises(BadTypingBinding, match="no secret reference"):
        TypingBinding(secret_ref="shop", origins=("https://shop.test",)).check()
    with pytest.raises(BadTypingBinding, match="names no origins"):
        TypingBinding(secret_ref="global/shop", origins=()).check()
    with pytest.raises(InvalidSetting, match=r"browser\.bindings: 'ftp://x'"):
        check_together(settings(browser={"bindings": [{"secret_ref": "global/x", "origins": ["ftp://x"]}]}))


def test_a_secret_without_a_binding_may_be_typed_nowhere() -> None:
    bound = BrowserSettings(
        bindings=(
            TypingBinding(secret_ref="global/shop", origins=("https://shop.test", "http://[::1]:8080")),
            TypingBinding(secret_ref="global/shop", origins=("https://shop.test", "https://pay.test")),
        )
    )
    check_together(Settings(browser=bound))
    assert bound.origins_of("global/shop") == ("https://shop.test", "http://[::1]:8080", "https://pay.test")
    assert bound.origins_of("global/other") == ()


@pytest.mark.parametrize(
    ("browser", "words"),
    [
        ({"session_budget": {"wings": 2}}, "browser.session_budget: a session budget has no field 'wings'"),
        ({"session_budget": {"max_tabs_per_session": 0}}, "browser.session_budget: max_tabs_per_session is a whole"),
        ({"download_types": [".exe"]}, "browser.download_types: '.exe' is not an ending"),
        ({"engine": "bin/chromium"}, "browser.engine: 'bin/chromium' is relative"),
    ],
)
def test_what_the_daemon_could_not_use_is_refused_when_it_is_read(browser: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        check_together(settings(browser=browser))
    assert refused.value.message.startswith(words)


def test_a_ceiling_is_the_design_s_but_for_what_is_named() -> None:
    given = settings(browser={"session_budget": {"max_tabs_per_session": 4}, "download_types": ["png"]}).browser
    assert (given.ceiling().max_tabs_per_session, given.ceiling().idle_ttl_ms) == (4, 600_000)
    assert given.downloads().extensions == {".txt", ".csv", ".pdf", ".json", ".png"}
