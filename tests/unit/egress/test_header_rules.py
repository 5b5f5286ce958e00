import pytest

from palyra.egress.domain.header_rules import BadHeader, ForbiddenHeader, accept_headers, for_another_host, without_body
from palyra.egress.limits import MAX_HEADER_VALUE_CHARS, MAX_REQUEST_HEADERS


@pytest.mark.parametrize(
    "name",
    [
        "Host", "hOsT", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "TE", "Trailer", "Upgrade",
        "Proxy-Authorization", "Proxy-Anything", "proxy-connection", "Expect", "Accept-Encoding", "HTTP2-Settings",
        "Content_Length", "transfer_encoding", "X-HTTP-Method-Override", "X_HTTP_Method_Override", "X-Original-URL",
        "X-Forwarded-Host", "Forwarded",
    ],
)  # fmt: skip
def test_headers_that_are_ours(name: str) -> None:
    with pytest.raises(ForbiddenHeader):
        accept_headers({name: "x"})


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\n", "ä", "a\x00", " a", "(a)", "x" * 129])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(BadHeader):
        accept_headers({name: "x"})


@pytest.mark.parametrize(
    "value",
    ["a\r\nHost: b", "a\nb", "a\rb", "a\x00b", "a\x0bb", "\x7f", "ä", " a", "a ", "x" * (MAX_HEADER_VALUE_CHARS + 1)],
)
def test_values_that_are_no_plain_line(value: str) -> None:
    with pytest.raises(BadHeader):
        accept_headers({"X-A": value})


def test_the_rest_passes_in_order_and_as_written() -> None:
    given = {"X-B": "1", "accept": "text/html, */*;q=0.1", "X-Empty": "", "X-Tab": "a\tb"}
    assert accept_headers(given) == tuple(given.items())


def test_one_header_in_two_spellings_and_too_many() -> None:
    with pytest.raises(BadHeader, match="twice"):
        accept_headers({"X-Api-Key": "1", "x_api_key": "2"})
    with pytest.raises(BadHeader):
        accept_headers({f"X-{number}": "1" for number in range(MAX_REQUEST_HEADERS + 1)})
    with pytest.raises(BadHeader):
        accept_headers({"X-A": 1})


def test_another_host_gets_only_the_harmless_ones() -> None:
    headers = (("Authorization", "s"), ("cookie", "s"), ("X-Api-Key", "s"), ("Accept", "a"), ("user_agent", "u"))
    assert for_another_host(headers) == (("Accept", "a"), ("user_agent", "u"))


def test_without_a_body_there_is_no_description_of_one() -> None:
    assert without_body((("Content-Type", "a"), ("X", "b"))) == (("X", "b"),)
