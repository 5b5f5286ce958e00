import pytest

from palyra.egress.client.request import (
    FetchRequest,
    Hop,
    RedirectMode,
    RedirectRefused,
    TooManyRedirects,
    is_redirect,
    next_hop,
)
from palyra.egress.domain.refusal import EgressRefused
from palyra.egress.limits import MAX_REDIRECTS

HEADERS = {"Authorization": "s", "Cookie": "c", "X-Key": "k", "Accept": "a", "Content-Type": "t"}


def first(url: str = "https://a.test/x", method: str = "GET", body: str | None = None) -> Hop:
    arguments = {"url": url, "method": method, "headers": HEADERS}
    return Hop.first(FetchRequest.parse(arguments if body is None else {**arguments, "body": body}))


def follow(hop: Hop, location: str, status: int = 302) -> Hop:
    return next_hop(hop, status, location, RedirectMode.FOLLOW)


def test_which_answers_are_redirects() -> None:
    assert [status for status in range(200, 400) if is_redirect(status)] == [301, 302, 303, 307, 308]


@pytest.mark.parametrize(
    ("status", "method", "becomes"),
    [
        (301, "GET", "GET"), (302, "HEAD", "HEAD"), (301, "POST", "GET"), (302, "POST", "GET"), (302, "PUT", "PUT"),
        (303, "POST", "GET"), (303, "DELETE", "GET"), (303, "HEAD", "HEAD"), (307, "POST", "POST"),
        (308, "PUT", "PUT"), (307, "GET", "GET"),
    ],
)  # fmt: skip
def test_methods(status: int, method: str, becomes: str) -> None:
    body = "data" if method in ("POST", "PUT") else None
    hop = follow(first(method=method, body=body), "/y", status)
    assert hop.method == becomes
    assert hop.body == (b"data" if body and becomes == method else None)
    assert ("Content-Type" in dict(hop.headers)) == (becomes == method)


def test_the_same_host_keeps_everything() -> None:
    hop = follow(first(), "/y")
    assert dict(hop.headers) == HEADERS and hop.with_credentials
    assert [(each.source, each.destination) for each in hop.passed] == [("https://a.test/x", "https://a.test/y")]


@pytest.mark.parametrize(
    ("start", "location"),
    [
        ("https://a.test/", "https://b.test/"),
        ("https://a.test/", "https://a.test:8443/"),
        ("https://a.test/", "https://sub.a.test/"),
        ("http://a.test/", "https://a.test/"),
    ],
)
def test_another_host_port_or_scheme_gets_nothing_of_value_and_it_stays_so(start: str, location: str) -> None:
    hop = follow(first(start), location)
    assert not hop.with_credentials and set(dict(hop.headers)) == {"Accept", "Content-Type"}
    back = follow(hop, start + "again") if start.startswith("https") else follow(hop, "/again")
    assert not back.with_credentials and "Authorization" not in dict(back.headers)


def test_never_down_from_https() -> None:
    with pytest.raises(RedirectRefused, match="down to http"):
        follow(first(), "http://a.test/x")


def test_a_body_does_not_follow_to_another_host() -> None:
    with pytest.raises(RedirectRefused, match="body"):
        follow(first(method="POST", body="data"), "https://b.test/", 307)
    assert follow(first(method="POST", body="data"), "https://b.test/", 302).body is None
    assert follow(first(method="POST"), "https://b.test/", 307).method == "POST"


def test_circles_and_long_chains() -> None:
    hop = follow(first(), "/1")
    for location in ("/x", "/1"):
        with pytest.raises(RedirectRefused, match="circle"):
            follow(hop, location)
    for number in range(2, MAX_REDIRECTS + 1):
        hop = follow(hop, f"/{number}")
    with pytest.raises(TooManyRedirects):
        follow(hop, "/one-more")


def test_the_callers_own_word() -> None:
    with pytest.raises(RedirectRefused, match="follow none") as refusal:
        next_hop(first(), 301, "/y\x1b[0m", RedirectMode.REFUSE)
    assert refusal.value.details["location"] == "/y?[0m"


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://127.1/", "ftp://a.test/", "https://u@a.test/"])
def test_odd_destinations_are_the_judges_refusals(location: str) -> None:
    with pytest.raises(EgressRefused):
        follow(first(), location)


@pytest.mark.parametrize("location", ["javascript:alert(1)", "data:text/html,x", "/\\b.test", "mailto:x@y"])
def test_destinations_that_are_no_addresses(location: str) -> None:
    with pytest.raises(RedirectRefused):
        follow(first(), location)
