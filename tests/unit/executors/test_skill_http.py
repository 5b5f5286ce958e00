"""Where a host of a manifest leads. The requests themselves are in test_skill_services.py."""

import pytest

from palyra.egress.domain.rules import HostRule, parse_rules
from palyra.executors.wasm.skill_http import find_reachable, is_in_clear, target_of

PLAIN = parse_rules(("lan.test:8080", "*.lan.test:8080"))


@pytest.mark.promise("P-skill-reach")
@pytest.mark.parametrize(
    ("rule", "target"),
    [
        ("api.test", "https://api.test:443"),
        ("api.test:80", "http://api.test:80"),
        ("api.test:8080", "https://api.test:8080"),
        ("lan.test:8080", "http://lan.test:8080"),
        ("a.lan.test:8080", "http://a.lan.test:8080"),
        ("lan.test:9200", "https://lan.test:9200"),
        ("lan.test", "https://lan.test:443"),
        ("[::1]:8080", "https://[::1]:8080"),
    ],
)
def test_tls_unless_port_80_or_the_operator_says_otherwise(rule: str, target: str) -> None:
    assert str(target_of(HostRule.parse(rule), PLAIN)) == target


def test_only_what_manifest_and_settings_both_allow_is_reachable() -> None:
    asked = ("a.api.test", "b.test:8080", "c.test")
    found = find_reachable(asked, ("*.api.test", "b.test", "c.test:443"))
    assert [str(rule) for rule in found] == ["a.api.test", "c.test"]


@pytest.mark.parametrize(
    ("asked", "allowed", "found"),
    [
        ("*.api.test", "*.api.test", ["*.api.test"]),
        ("*.api.test", "*.test.example", []),
        ("*.eu.api.test", "*.api.test", ["*.eu.api.test"]),
        ("*.api.test", "*.eu.api.test:443", ["*.eu.api.test:443"]),
        ("*.api.test", "a.api.test", ["a.api.test"]),
        ("*.api.test", "api.test", []),
        ("*.api.test:8443", "*.api.test", []),
    ],
)
def test_of_a_line_with_a_star_the_part_that_the_settings_allow_is_reachable(
    asked: str, allowed: str, found: list[str]
) -> None:
    assert [str(rule) for rule in find_reachable((asked,), (allowed,))] == found


@pytest.mark.promise("P-skill-reach")
@pytest.mark.parametrize(
    ("rule", "open_to_all"),
    [("api.test", False), ("api.test:80", True), ("lan.test:8080", False), ("lan.test:80", True)],
)
def test_a_manifest_cannot_send_a_secret_in_clear(rule: str, open_to_all: bool) -> None:
    target = target_of(HostRule.parse(rule), PLAIN)
    assert is_in_clear(target, PLAIN) is open_to_all
