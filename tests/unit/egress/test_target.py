import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress.domain.refusal import OddTarget, SchemeNotAllowed
from palyra.egress.domain.target import Target


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port", "authority"),
    [
        ("https://example.org", "https", "example.org", 443, "example.org:443"),
        ("HTTP://Example.ORG:8080/a?b#c", "http", "example.org", 8080, "example.org:8080"),
        ("http://[2A00::1]/x", "http", "2a00::1", 80, "[2a00::1]:80"),
        ("https://1.2.3.4?x=http://evil.example@y", "https", "1.2.3.4", 443, "1.2.3.4:443"),
        ("https://example.org#@evil.example", "https", "example.org", 443, "example.org:443"),
        ("https://bücher.example./ü", "https", "xn--bcher-kva.example", 443, "xn--bcher-kva.example:443"),
    ],
)
def test_urls(url: str, scheme: str, host: str, port: int, authority: str) -> None:
    target = Target.from_url(url)
    assert (target.scheme, target.host, target.port, target.authority) == (scheme, host, port, authority)
    assert str(target) == f"{scheme}://{authority}"


@pytest.mark.parametrize(
    "url", ["ftp://example.org", "file:///etc/passwd", "tcp://example.org:22", "ws://example.org", "gopher://x.org:70"]
)
def test_other_schemes_are_refused(url: str) -> None:
    with pytest.raises(SchemeNotAllowed):
        Target.from_url(url)


def test_authorities() -> None:
    assert Target.from_authority("example.org:22", scheme="tcp") == Target("tcp", "example.org", 22)
    assert Target.from_authority("example.org", scheme="https").port == 443
    assert Target.from_authority("[::1]:443", scheme="https").host == "::1"
    for raw in ("example.org", "", ":80", "[::1]", "::1", "fe80::1:80"):
        with pytest.raises(OddTarget):
            Target.from_authority(raw, scheme="tcp")


def test_parts_that_a_protocol_kept_apart() -> None:
    assert Target.of("127.0.0.1", 80, scheme="tcp").is_address
    assert Target.of("::1", 80, scheme="tcp") == Target.of("[::1]", 80, scheme="tcp")
    assert not Target.of("Example.org", 80, scheme="tcp").is_address
    with pytest.raises(SchemeNotAllowed):
        Target.of("example.org", 80, scheme="udp")
    for port in (0, -1, 65536):
        with pytest.raises(OddTarget):
            Target.of("example.org", port, scheme="tcp")


@pytest.mark.parametrize("host", ["Example.org", "example.org.", "127.1", "[::1]", "0:0::1", ""])
def test_no_target_exists_with_another_spelling(host: str) -> None:
    with pytest.raises(OddTarget):
        Target("https", host, 443)


@given(st.text(max_size=30))
def test_whatever_is_read_from_an_authority_reads_the_same_again(raw: str) -> None:
    try:
        target = Target.from_authority(raw, scheme="https")
    except OddTarget:
        return
    assert Target.from_authority(target.authority, scheme="https") == target
