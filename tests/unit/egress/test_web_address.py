"""Addresses in the one spelling that is judged, sent and shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress.domain.refusal import EgressRefused, OddTarget, SchemeNotAllowed
from palyra.egress.limits import MAX_URL_CHARS
from palyra.egress.protocols.http1_request import BadUrl, WebAddress
from palyra.errors import PalyraError


@pytest.mark.parametrize(
    ("raw", "shown", "host_header"),
    [
        ("http://a.test", "http://a.test/", "a.test"),
        ("HTTP://A.Test:80/x?y=1#frag", "http://a.test/x?y=1", "a.test"),
        ("https://a.test:443?q", "https://a.test/?q", "a.test"),
        ("https://a.test:8443/", "https://a.test:8443/", "a.test:8443"),
        ("http://[2001:db8::1]:8080/x", "http://[2001:db8::1]:8080/x", "[2001:db8::1]:8080"),
        ("http://[2001:DB8::1]/x", "http://[2001:db8::1]/x", "[2001:db8::1]"),
        ("http://a.test/ä b|{}", "http://a.test/%C3%A4%20b%7C%7B%7D", "a.test"),
        ("http://a.test/%41/../x", "http://a.test/%41/../x", "a.test"),
    ],
)
def test_one_spelling(raw: str, shown: str, host_header: str) -> None:
    address = WebAddress.parse(raw)
    assert str(address) == shown and address.host_header == host_header
    assert WebAddress.parse(shown) == address


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        ("http://a.test/x\r\nHost: b", BadUrl),
        ("http://a.test/x\n", BadUrl),
        ("http://a.test\\@b.test/", BadUrl),
        ("http://a.test/\x00", BadUrl),
        ("http://a.test/%zz", BadUrl),
        ("http://a.test/\ud800", BadUrl),
        ("a.test/x", BadUrl),
        ("javascript:alert(1)", BadUrl),
        ("http:a.test", BadUrl),
        ("http://a.test/" + "x" * MAX_URL_CHARS, BadUrl),
        ("http://a.test/" + "ä" * (MAX_URL_CHARS // 4), BadUrl),
        ("file:///etc/passwd", SchemeNotAllowed),
        ("gopher://a.test/", SchemeNotAllowed),
        ("http://user:pass@a.test/", OddTarget),
        ("http://127.1/", OddTarget),
        ("http://0x7f000001/", OddTarget),
        ("http://a.test:0/", OddTarget),
        ("http:///x", OddTarget),
    ],
)
def test_what_is_odd_is_refused(raw: str, error: type[PalyraError]) -> None:
    with pytest.raises(error):
        WebAddress.parse(raw)


@pytest.mark.parametrize(
    ("location", "leads_to"),
    [
        ("/y", "https://a.test/y"),
        ("y?z", "https://a.test/d/y?z"),
        ("../y", "https://a.test/y"),
        ("//b.test/y", "https://b.test/y"),
        ("http://b.test:81/", "http://b.test:81/"),
        ("?q", "https://a.test/d/x?q"),
        ("#only", "https://a.test/d/x"),
        ("/with space", "https://a.test/with%20space"),
    ],
)
def test_joining(location: str, leads_to: str) -> None:
    assert str(WebAddress.parse("https://a.test/d/x").join(location)) == leads_to


@pytest.mark.parametrize("location", ["\r\n", "/\\b.test", "http://a\tb/", "http://[/", "x" * (MAX_URL_CHARS + 1)])
def test_a_location_that_is_no_address(location: str) -> None:
    with pytest.raises((BadUrl, EgressRefused)):
        WebAddress.parse("https://a.test/").join(location)


@given(st.text(max_size=80))
def test_whatever_is_accepted_is_one_plain_line(tail: str) -> None:
    try:
        address = WebAddress.parse("http://a.test/" + tail)
    except PalyraError:
        return
    assert address.target.host == "a.test" and address.path.startswith("/")
    assert all("!" <= character <= "~" for character in address.path) and "#" not in address.path
