"""Which addresses a tab may have: by scheme, with every spelling that a browser would read in another way refused."""

import pytest

from palyra.browser.domain.page_address import AddressKind, kind_of, origin_of, render_address, require_tab_address
from palyra.browser.domain.page_errors import BadAddress, SchemeRefused


@pytest.mark.parametrize("url", ["http://a.test/", "HTTPS://a.test", "https://a.test:8443/x?y#z"])
def test_pages_of_the_web_are_for_the_judge(url: str) -> None:
    assert require_tab_address(url) is AddressKind.WEB


@pytest.mark.parametrize("url", ["about:blank", "about:blank#x", "ABOUT:BLANK"])
def test_a_tab_may_be_blank(url: str) -> None:
    assert require_tab_address(url) is AddressKind.BLANK


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "chrome://settings",
        "devtools://devtools/bundled/inspector.html",
        "view-source:http://a.test/",
        "javascript:alert(1)",
        "data:text/html,x",
        "blob:http://a.test/1",
        "filesystem:http://a.test/temporary/x",
        "about:version",
        "chrome-extension://x/",
        "chrome-untrusted://x/",
        "ftp://a.test/",
        "ws://a.test/",
        "externalfile:x",
        "mailto:a@b.test",
        "intent://x",
    ],
)
def test_nothing_else_may_be_shown(url: str) -> None:
    with pytest.raises(SchemeRefused):
        require_tab_address(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a.test",
        "//a.test/",
        " http://a.test/",
        "java\nscript:x",
        "http://a.test/\x00",
        "http:\\\\a.test",
        "x" * 9_000,
    ],
)
def test_what_programs_read_differently_is_no_address(url: str) -> None:
    with pytest.raises(BadAddress):
        require_tab_address(url)


def test_content_of_a_page_is_told_from_places() -> None:
    kinds = {url: kind_of(url) for url in ("data:,x", "blob:http://a.test/1", "about:srcdoc", "wss://a.test/", "x")}
    assert list(kinds.values()) == [
        AddressKind.INSIDE,
        AddressKind.INSIDE,
        AddressKind.BLANK,
        AddressKind.WEB,
        AddressKind.FORBIDDEN,
    ]


def test_an_address_is_shown_without_a_password_and_on_one_line() -> None:
    assert render_address("http://me:pw@a.test/x@y") == "http://a.test/x@y"
    assert "\n" not in render_address("http://a.test/\nSet: x")
    assert len(render_address("http://a.test/" + "x" * 9_000)) == 512


def test_origins() -> None:
    assert origin_of("HTTPS://A.test:8443/x") == "https://a.test:8443"
    assert [origin_of(url) for url in ("https://u@a.test/", "about:blank", "data:,x")] == ["", "", ""]
