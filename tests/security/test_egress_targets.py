"""Attacks on the spelling of a target: each tries to reach what the grant does not allow, or to look like what it does.

Every attack goes the way that traffic goes: its text is read as a URL, an authority and a SOCKS name, the target is
judged, the name is resolved by the system's own resolver (which folds odd spellings gladly) and the answers are judged.
"""

import socket
from collections.abc import Callable

import pytest

from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.judge import EgressProxyPolicyService, Pin
from palyra.egress.domain.refusal import AddressForbidden, EgressRefused, HostNotAllowed, OddTarget, SchemeNotAllowed
from palyra.egress.domain.rules import parse_rules
from palyra.egress.domain.target import Target

pytestmark = pytest.mark.promise("P-net-addresses")

SERVICE = EgressProxyPolicyService(lambda: frozenset({"93.184.216.1"}))
PUBLIC = "93.184.216.34"


def grant(*rules: str, private: tuple[str, ...] = ()) -> EgressGrant:
    return EgressGrant(
        grant_id="g",
        principal="agent:a",
        run="r",
        call="c",
        tool="http.fetch",
        rules=parse_rules(rules),
        private_targets=parse_rules(private),
    )


GRANT = grant("example.com", "*.sub.example.com", "api.example.com:8443")


def reach(target: Target, answers: tuple[str, ...], allowed: EgressGrant = GRANT) -> Pin:
    SERVICE.judge_target(allowed, target)
    return SERVICE.judge_answers(allowed, target, answers)


def ways_in(host: str) -> list[tuple[str, Callable[[], Target]]]:
    return [
        ("url", lambda: Target.from_url(f"http://{host}/")),
        ("authority", lambda: Target.from_authority(f"{host}:80", scheme="http")),
        ("socks", lambda: Target.of(host, 80, scheme="tcp")),
    ]


def test_the_honest_request_passes() -> None:
    assert reach(Target.from_url("https://example.com/"), (PUBLIC,)).addresses == (PUBLIC,)
    assert reach(Target.from_url("https://a.sub.example.com/"), (PUBLIC,)).addresses == (PUBLIC,)
    assert reach(Target.from_url("https://api.example.com:8443/"), (PUBLIC,)).addresses == (PUBLIC,)


LOOPBACK_SPELLINGS = [
    *("127.1", "127.0.1", "2130706433", "017700000001", "0177.0.0.1", "0177.1", "0x7f000001", "0x7f.0.0.1", "0x7f.1"),
    *("0X7F.1", "127.0.0.1.", "127.0.0.0x1", "00127.0.0.1", "127.000.000.001", "4294967295", "0", "0x", "0.0", "1.1"),
    *("\uff11\uff12\uff17.0.0.1", "127\u30020\u30020\u30021", "127\uff0e0\uff0e0\uff0e1", "127\uff610\uff610\uff611"),
    *(
        "\u2460\u2461\u2466.0.0.1",
        "\u0661\u0662\u0667.0.0.1",
        "127.0.0.1%00",
        "127.0.0.1%2e",
        "127.0.0.1\0.example.com",
    ),
    *("[::1%lo]", "[::1%25lo]", "[127.0.0.1]", "[::ffff:127.1]", "[0:0:0:0:0:0:0:0:1]", "[::1].example.com", "::1%lo"),
]


@pytest.mark.parametrize("host", LOOPBACK_SPELLINGS)
def test_another_spelling_of_an_address_is_refused_and_not_normalised(host: str) -> None:
    for _, read in ways_in(host):
        with pytest.raises(OddTarget):
            read()


def test_the_systems_resolver_would_have_folded_them() -> None:
    """Why spelling is refused before anything is resolved: this machine's resolver reads these as loopback."""
    folded = [each for each in ("127.1", "0x7f.1", "2130706433", "017700000001") if _resolves_to_loopback(each)]
    assert folded


def _resolves_to_loopback(name: str) -> bool:
    return socket.getaddrinfo(name, 80, type=socket.SOCK_STREAM)[0][4][0] == "127.0.0.1"


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.255.255.254", "10.0.0.1", "169.254.169.254", "168.63.129.16", "100.100.100.200", "0.0.0.0"),
        *("[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[::ffff:0:127.0.0.1]"),
        *("[64:ff9b::127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[fd00:ec2::254]"),
        *("[2001:0:5db8:d822::80ff:fffe]", "[fe80::1]", "[fe80::5efe:7f00:1]", "[2a00::5efe:7f00:1]", "[ff02::1]"),
    ],
)
def test_a_plain_literal_needs_a_rule_and_a_rule_does_not_open_it(host: str) -> None:
    for _, read in ways_in(host):
        target = read()
        assert target.is_address
        with pytest.raises(HostNotAllowed):
            reach(target, (target.host,))
        with pytest.raises(AddressForbidden):
            reach(target, (target.host,), grant(host))


@pytest.mark.parametrize(
    "host",
    [
        *("evilexample.com", "example.com.evil.net", "example.comevil.net", "example.co", "xexample.com", "com"),
        *("sub.example.com", "evilsub.example.com.net", "x-sub.example.com", "asub.example.com", "www.example.com"),
        # Letters of another script that look the same are another name, and stay one.
        *("ex\u0430mple.com", "example.\u0441om", "\u0435xample.com"),
    ],
)
def test_a_name_that_looks_like_an_allowed_one_is_not_allowed(host: str) -> None:
    for _, read in ways_in(host):
        with pytest.raises(HostNotAllowed):
            reach(read(), (PUBLIC,))


@pytest.mark.promise("P-limits")
@pytest.mark.parametrize(
    "host",
    [
        *("example.com\0.evil.net", "example.com%00.evil.net", "example.com%2eevil.net", "evil.net%23.example.com"),
        *("exam\u200bple.com", "exam\u00adple.com", "exam\u2060ple.com", "\ufeffexample.com", "example\u3002com"),
        *("example\uff0ecom", "example\uff61com", "\uff45xample.com", "example.com\u2024", "e\u0345xample.com"),
        *(
            "example..com",
            ".example.com",
            "example.com..",
            "*.example.com",
            "-example.com",
            "example-.com",
            " example.com",
        ),
        *(
            "example.com ",
            "example.com\t",
            "example.com\n",
            "example.com\r\nX: y",
            "ex ample.com",
            "example.com;evil.net",
        ),
        *("evil.net\\.example.com", "evil.net/.example.com", "evil.net?.example.com", "evil.net#.example.com"),
        *("u@example.com", "example.com@evil.net", "example.com,evil.net", "xn--example-.com", "xn--a.com", "xn--.com"),
        *(
            "stra\u00dfe.example.com",
            "\u03c2.example.com",
            "a\u200d.example.com",
            "",
            ".",
            "[example.com]",
            "<example.com>",
        ),
        "a" * 64 + ".sub.example.com",
        "a." * 127 + "sub.example.com",
    ],
)
def test_names_with_tricks_in_them_are_refused(host: str) -> None:
    for way, read in ways_in(host):
        with pytest.raises(EgressRefused) as refusal:
            reach(read(), (PUBLIC,))
        # A URL ends its host at a slash, a question mark or a hash, and what is left is not allowed.
        expected = HostNotAllowed if way == "url" and set(host) & set("/?#") else OddTarget
        assert refusal.type is expected, way


@pytest.mark.parametrize(
    "url",
    [
        *("http://example.com@evil.net/", "http://example.com:80@evil.net/", "http://evil.net@example.com/"),
        *("http://@example.com/", "http://:@example.com/", "http://example.com\\@evil.net/", "http:\\\\example.com\\"),
        *("http:///example.com/", "http:/example.com/", "http:example.com", "http:////example.com/", "//example.com/"),
        *("http://example.com:/", "http://example.com:0/", "http://example.com:65536/", "http://example.com:+80/"),
        *("http://example.com:080/", "http://example.com:80a/", "http://example.com:-1/", "http://example.com: 80/"),
        *("http://example.com:80:80/", "http://example.com:\uff18\uff10/", "http://example.com:8_0/", "http://:80/"),
        *(
            "ht\ttp://example.com/",
            "http://exam\nple.com/",
            "http://example.com/\r\nHost: evil.net",
            "\0http://example.com/",
        ),
        *(" http://example.com/", "http://example.com/ ", "http://example.com/a b", "http://example.com/a\u2028b"),
        *("http://example.com%2f@evil.net/", "http://[::1/", "http://::1/", "http://[::1]evil.net/", "http://[]/"),
        *("http://example.com|evil.net/", "http://{example.com}/", "http://example.com^/", "http://example.com`/"),
        "http://example.com/" + "a" * 10_000,
    ],
)
def test_urls_that_parsers_read_differently_are_refused(url: str) -> None:
    with pytest.raises(OddTarget):
        Target.from_url(url)


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "gopher://example.com:80/", "ftp://example.com/", "dict://example.com/", "jar://a/"]
)
def test_other_schemes_do_not_go_out(url: str) -> None:
    with pytest.raises(SchemeNotAllowed):
        Target.from_url(url)


def test_case_and_one_trailing_dot_are_the_same_host_and_no_way_around_a_port() -> None:
    for host in ("EXAMPLE.com", "example.COM.", "eXaMpLe.CoM"):
        for _, read in ways_in(host):
            assert reach(read(), (PUBLIC,)).target.host == "example.com"
    with pytest.raises(HostNotAllowed):
        reach(Target.from_url("http://EXAMPLE.com.:8080/"), (PUBLIC,))


@pytest.mark.parametrize(
    "answers",
    [
        *(("127.0.0.1",), (PUBLIC, "127.0.0.1"), ("::1", PUBLIC), (PUBLIC, "169.254.169.254"), ("93.184.216.1",)),
        *((PUBLIC, "::ffff:10.0.0.1"), ("64:ff9b::a00:1",), ("fe80::1%eth0",), ("2002:a00:1::",), ("0.0.0.0",), ("",)),
    ],
)
def test_an_allowed_name_that_resolves_inside_is_refused_also_in_company(answers: tuple[str, ...]) -> None:
    with pytest.raises(AddressForbidden) as refusal:
        reach(Target.from_url("https://example.com/"), answers)
    assert refusal.value.violation and refusal.value.refusal().host == "example.com"


def test_a_private_target_does_not_lend_its_opening_to_others() -> None:
    opened = grant("db.example.com:5432", "example.com", private=("db.example.com:5432",))
    assert reach(Target.of("db.example.com", 5432, scheme="tcp"), ("10.0.0.7",), opened)
    for target, answer in [
        (Target.of("example.com", 443, scheme="https"), "10.0.0.7"),
        (Target.of("db.example.com", 5432, scheme="tcp"), "169.254.169.254"),
        (Target.of("db.example.com", 5432, scheme="tcp"), "::ffff:10.0.0.7"),
    ]:
        with pytest.raises(AddressForbidden):
            reach(target, (answer,), opened)
    with pytest.raises(HostNotAllowed):
        reach(Target.of("10.0.0.7", 5432, scheme="tcp"), ("10.0.0.7",), opened)
