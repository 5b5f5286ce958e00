import pytest

from palyra.client.address import BadAddress, PlaintextRefused, ServerAddress, UnusableToken, usable_token
from palyra.secret import Secret


@pytest.mark.parametrize(
    ("url", "host", "port", "tls", "prefix", "header"),
    [
        ("http://127.0.0.1:7142", "127.0.0.1", 7142, False, "", "127.0.0.1:7142"),
        ("http://localhost", "localhost", 80, False, "", "localhost"),
        ("http://[::1]:7142/", "::1", 7142, False, "", "[::1]:7142"),
        ("https://palyra.example/base/", "palyra.example", 443, True, "/base", "palyra.example"),
    ],
)
def test_parses(url: str, host: str, port: int, tls: bool, prefix: str, header: str) -> None:
    address = ServerAddress.parse(url)
    assert (address.host, address.port, address.tls, address.prefix) == (host, port, tls, prefix)
    assert address.host_header == header


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://127.0.0.1",
        "127.0.0.1:7142",
        "http://",
        "http://127.0.0.1:x",
        "http://127.0.0.1:99999",
        "http://user:pass@127.0.0.1",
        "http://127.0.0.1/?q",
        "http://127.0.0.1/#f",
        "http://127.0.0.1\r\nx: y",
        "http://127.0.0.1/a b",
        "http://[::1",
    ],
)
def test_refuses_what_is_no_address(url: str) -> None:
    with pytest.raises(BadAddress):
        ServerAddress.parse(url)


@pytest.mark.parametrize(
    "url", ["http://10.0.0.1", "http://example.com", "http://127.0.0.1.example.com", "http://0.0.0.0"]
)
def test_plain_http_stays_on_this_machine(url: str) -> None:
    with pytest.raises(PlaintextRefused):
        ServerAddress.parse(url)
    assert ServerAddress.parse(url, allow_plaintext=True).tls is False


def test_tokens_are_one_visible_word_and_never_shown() -> None:
    assert usable_token(None) is None
    assert usable_token("plr_x") == Secret("plr_x")
    for bad in ("", "top secret", "sesame\r\nx: y", "sesamé", "sesame\x00"):
        with pytest.raises(UnusableToken) as caught:
            usable_token(bad)
        assert "sesam" not in str(caught.value) and "secret" not in str(caught.value)
