import time

import pytest

from fakes.skill_harness import artifact
from palyra.limits import MIB
from palyra.skills.trust.audit import audit_content
from palyra.skills.trust.findings import Finding


def found(content: bytes, **options: str) -> list[Finding]:
    return list(audit_content(artifact(assets={"a.txt": content}, **options)))


@pytest.mark.parametrize(
    "secret",
    [
        b"-----BEGIN PRIVATE KEY-----\n" + b"MC4CAQAwBQYDK2VwBCIEIA" * 3,
        b"-----BEGIN RSA PRIVATE KEY-----\r\n" + b"A" * 64,
        b"AKIAIOSFODNN7EXAMPLE"[:16] + b"ABCD",
        b"ghp_" + b"a1B2" * 9,
        b"glpat-" + b"a1B2c" * 4,
        b"xoxb-" + b"1" * 12 + b"-" + b"abcDEF123456",
        b"AIza" + b"a1B2c" * 7,
        b"sk_live_" + b"a1B2c" * 5,
        b"npm_" + b"a1B2" * 9,
        b"sk-ant-" + b"a1B2c" * 8,
        b"plr_" + b"a1B2c" * 8,
        b"https://user:hunter22@db.acme.io/x",
    ],
)
def test_credentials_are_found_and_not_repeated(secret: bytes) -> None:
    findings = [one for one in found(b"line one\nx = '" + secret + b"'\n") if one.id == "embedded-secret"]
    assert [(one.entry, one.line) for one in findings] == [("assets/a.txt", 2)]
    assert secret.decode() not in findings[0].evidence


@pytest.mark.parametrize(
    "text", [b"-----BEGIN PUBLIC KEY-----\n" + b"A" * 64, b"-----BEGIN PRIVATE KEY-----", b"ghp_short", b"AKIA"]
)
def test_what_only_looks_like_one_is_not(text: bytes) -> None:
    assert found(text) == []


def test_hosts_out_of_reach_are_named_once_for_each_entry() -> None:
    text = b"http://evil.io/x http://evil.io/y https://api.acme.io:8443 https://api.acme.io https://example.com http://localhost"
    (one,) = found(text, capabilities='http_egress_allowlist = ["api.acme.io"]')
    assert one.id == "url-not-allowed" and one.evidence == "it names evil.io, api.acme.io"
    many = b" ".join(b"https://h%d.io" % number for number in range(9))
    (one,) = found(many)
    assert one.evidence.endswith("and 4 more")


@pytest.mark.parametrize(
    "text",
    [
        b"https://evilexample.com",
        b"https://evilexample.org/x",
        b"https://example.com.evil.io",
        b"HTTPS://evil.io",
        b"hTTp://EVIL.io",
        b'{"a": "https:\\/\\/evil.io"}',
        b"wss://evil.io/socket",
        b"textws://evil.io",
        b"https://example.com@evil.io",
        b"https://evil.io?a@example.com",
        b"https://evil.io,a@example.com",
        b"http://a.example " * 20_000 + b"https://evil.io",
        b"http://a.example " * 20_000 + b"WSS:\\/\\/evil.io",
    ],
)
def test_no_way_to_write_an_address_hides_it(text: bytes) -> None:
    (one,) = found(text)
    assert one.id == "url-not-allowed" and "evil" in one.evidence


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (b"http://[::1]/", "[::1]"),
        (b"https://[2001:db8::1]:8443/x", "[2001:db8::1]"),
        (b"x = 'HTTPS://[2001:DB8:0:0::1]'", "[2001:db8::1]"),
        (b"http://[::ffff:127.0.0.1]/", "[::ffff:7f00:1]"),
        (b"http://[fe80::1%25eth0]/", "[fe80::1]"),
        (b"http://[fe80::1%eth0]:80/", "[fe80::1]"),
        (b"ws:\\/\\/[::1]:9", "[::1]"),
        (b"https://user@[2001:db8::1]/", "[2001:db8::1]"),
        (b"https://example.com@[::1]/", "[::1]"),
        (b"https://example.com,a@[::1]/", "[::1]"),
        (b"\0asm\1http://[::1]\0", "[::1]"),
    ],
)
def test_a_host_written_as_an_ipv6_address_is_seen(text: bytes, named: str) -> None:
    (one,) = found(text)
    assert (one.id, one.evidence) == ("url-not-allowed", f"it names {named}")


@pytest.mark.parametrize(
    "spelled", ["127.1", "0x7f000001", "2130706433", "0177.0.0.1", "127.0.0.01", "0X7f.0.0.1", "169.254.43518"]
)
def test_an_ipv4_address_in_an_odd_spelling_is_seen(spelled: str) -> None:
    (one,) = found(f"http://{spelled}/x".encode())
    assert (one.id, one.evidence) == ("url-not-allowed", f"it names {spelled}")


def test_an_ipv6_address_that_was_asked_for_is_allowed_and_no_other() -> None:
    asked = 'http_egress_allowlist = ["[2001:db8::1]:8443"]'
    assert found(b"https://[2001:db8::1]:8443/ https://[2001:DB8:0::1]:8443", capabilities=asked) == []
    (one,) = found(b"https://[2001:db8::2]:8443 https://[2001:db8::1]:9", capabilities=asked)
    assert one.evidence == "it names [2001:db8::2], [2001:db8::1]"


@pytest.mark.parametrize("text", [b"http://[]", b"http://[hello]", b"http://[:::]/", b"http://[::1", b"http://[1.2.3]"])
def test_what_is_no_address_in_brackets_names_nobody(text: bytes) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    "host", [b"example.com", b"www.example.org", b"a.test", b"b.example", b"localhost", b"x.localhost"]
)
def test_names_that_nobody_can_reach_are_harmless(host: bytes) -> None:
    assert found(b"https://" + host + b"/x wss://" + host) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"http://", "too many addresses"),
        (b"http://a.example ", "too many addresses"),
        (b"sk_live_", "too many places that may be a Stripe key"),
        (b"://", "too many addresses"),
        (b"http://[::1%" + b"a" * 64, "too many addresses"),
    ],
)
def test_an_archive_made_to_keep_an_audit_busy_is_told_in_reasonable_time(text: bytes, said: str) -> None:
    piece = text * (15 * MIB // len(text))
    made = artifact(assets={f"{number}.txt": piece + b" https://evil.io" for number in range(3)})
    begun = time.process_time()
    findings = list(audit_content(made))
    assert time.process_time() - begun < 4
    crowded = [one.entry for one in findings if one.id == "content-crowded" and one.evidence == said]
    assert crowded == ["assets/0.txt", "assets/1.txt", "assets/2.txt"]
