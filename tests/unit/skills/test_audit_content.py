import pytest

from fakes.skill_scene import artifact
from palyra.skills.audit_content import audit_content
from palyra.skills.findings import Finding


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


def test_an_entry_made_of_addresses_is_read_in_reasonable_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr("palyra.skills.audit_content.canonical_host", lambda host: looked.append(host) or host)
    found(b"http://a.io " * 50_000)
    assert len(looked) == 10_000
