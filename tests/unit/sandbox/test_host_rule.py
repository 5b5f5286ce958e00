import pytest

from palyra.sandbox.host_rule import BadHostRule, HostRule, HostRules, OddHost, canonical_host


@pytest.mark.parametrize(
    ("raw", "host"),
    [
        ("Example.ORG", "example.org"),
        ("example.org.", "example.org"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "::1"),
        ("[0:0:0:0:0:0:0:1]", "::1"),
        ("localhost", "localhost"),
        ("_srv.example.org", "_srv.example.org"),
        ("1and1.example", "1and1.example"),
    ],
)
def test_one_spelling(raw: str, host: str) -> None:
    assert canonical_host(raw) == host


@pytest.mark.parametrize(
    "raw",
    [
        *(
            "",
            ".",
            "a..b",
            "-a.example",
            "a-.example",
            "a b",
            "a\0b",
            "a%2eb",
            "a/b",
            "a\\b",
            "x" * 64 + ".example",
            "a." * 130 + "b",
        ),
        *("127.1", "0x7f.1", "0x7f000001", "2130706433", "0177.0.0.1", "127.0.0.1.1", "1.2.3.256", "example.0x1"),
        *(
            "１２７.0.0.1",
            "ｅxample.org",
            "example。org",
            "straße.example",
            "faß.example",
            "a\u200db.example",
            "[::1",
            "[::1%25lo]",
        ),
    ],
)
def test_odd_spellings_are_refused(raw: str) -> None:
    with pytest.raises(OddHost):
        canonical_host(raw)


@pytest.mark.parametrize(
    ("rule", "host", "port"),
    [
        ("example.org", "example.org", None),
        ("example.org", "example.org", 8080),
        ("EXAMPLE.org:443", "example.org", 443),
        ("example.org:443", "example.org", None),
        ("*.example.org", "a.example.org", 1),
        ("*.example.org", "a.b.example.org", None),
        ("[::1]:80", "::1", 80),
        ("127.0.0.1", "127.0.0.1", 80),
    ],
)
def test_covered(rule: str, host: str, port: int | None) -> None:
    assert HostRule.parse(rule).covers(host, port)


@pytest.mark.parametrize(
    ("rule", "host", "port"),
    [
        ("example.org", "a.example.org", None),
        ("example.org", "badexample.org", None),
        ("example.org", "example.org.evil", None),
        ("example.org:443", "example.org", 80),
        ("*.example.org", "example.org", None),
        ("*.example.org", "badexample.org", None),
        ("*.example.org:443", "a.example.org", 80),
    ],
)
def test_not_covered(rule: str, host: str, port: int | None) -> None:
    assert not HostRule.parse(rule).covers(host, port)


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "*",
        "*.",
        "*.org",
        "a*.example.org",
        "*.*.org",
        "example.org:",
        "example.org:0",
        "example.org:99999",
        "http://x.org",
        "u@x.org",
        "*.0.0.1",
        "127.1",
    ],
)
def test_bad_rules(rule: str) -> None:
    with pytest.raises(BadHostRule):
        HostRule.parse(rule)


def test_an_empty_list_covers_nothing() -> None:
    assert not HostRules(()).cover("example.org", None)
