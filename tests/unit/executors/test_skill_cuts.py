"""What a review says of a request that the settings do not give whole."""

import json
from typing import Any

import msgspec
import pytest

from fakes.skill_harness import artifact
from palyra.daemon.settings import Settings
from palyra.executors.wasm.skill_tools import gets_less
from palyra.skills.trust.capability_difference import capability_lines

PLAIN = "requests and secrets without TLS"


def cuts(capabilities: str, **settings: dict[str, Any]) -> list[tuple[str, str, str]]:
    asked = artifact(capabilities=capabilities).manifest.capabilities
    whole = msgspec.convert(settings, Settings)
    found = gets_less(asked, whole.wasm, whole.egress, whole.tools)
    assert {one.asked for one in found} <= set(capability_lines(asked)), "the words are those of the request"
    return [(one.asked, one.gets, one.setting) for one in found]


@pytest.mark.promise("P-skill-approved")
@pytest.mark.parametrize(
    ("quota", "settings", "gets", "setting"),
    [
        ("fuel_budget = 2000", {"wasm": {"fuel": 10, "max_fuel": 1_000}}, "1000", "wasm.max_fuel"),
        ("max_memory_bytes = 131072", {"wasm": {"memory_bytes": 65_536}}, "65536", "wasm.memory_bytes"),
        ("timeout_ms = 900", {"tools": {"timeout_ms": 800, "max_timeout_ms": 800}}, "800", "tools.max_timeout_ms"),
        (
            "timeout_ms = 900",
            {"tools": {"timeout_ms": 700, "max_timeout_ms": 1_000}},
            "700 in a call that names no deadline",
            "tools.timeout_ms",
        ),
    ],
)
def test_a_quota_beyond_the_settings_is_what_they_give(
    quota: str, settings: dict[str, Any], gets: str, setting: str
) -> None:
    assert cuts(f"quotas = {{ {quota} }}", **settings) == [(f"have the quota {quota}", gets, setting)]


@pytest.mark.promise("P-skill-approved")
def test_hosts_that_the_settings_do_not_allow_are_named() -> None:
    asked = 'http_egress_allowlist = ["a.test", "b.test", "*.c.test"]\nwildcard_opt_in = ["http"]'
    assert cuts(asked, egress={"allowed_hosts": ["a.test", "x.c.test"]}) == [
        ("send requests to *.c.test", "x.c.test", "egress.allowed_hosts"),
        ("send requests to b.test", "no host", "egress.allowed_hosts"),
    ]
    assert cuts(asked, egress={"allowed_hosts": ["a.test", "b.test", "*.c.test"]}) == []


def test_an_address_that_no_setting_opens_is_named_with_its_range() -> None:
    hosts = ["10.0.0.7:8443", "[::1]:9000", "169.254.169.254:80", "93.184.216.34"]
    asked = f"http_egress_allowlist = {json.dumps(hosts)}"
    found = cuts(asked, egress={"allowed_hosts": hosts, "private_targets": ["[::1]:9000", "169.254.169.254:80"]})
    assert [(one, gets.partition(" it is in the range of ")[0], setting) for one, gets, setting in found] == [
        ("send requests to 10.0.0.7:8443", "no host:", "egress.private_targets"),
        ("send requests to 169.254.169.254:80", "no host, ever:", "egress.allowed_hosts"),
    ]


@pytest.mark.promise("P-skill-approved")
def test_a_host_that_is_reached_without_tls_is_named_but_for_those_that_get_no_secret() -> None:
    hosts = ["lan.test:8080", "lan.test:9200", "lan.test:80", "pub.test:80", "pub.test:8080", "pub.test"]
    asked = f"http_egress_allowlist = {json.dumps(hosts)}"
    private, plain = [host for host in hosts if host.startswith("lan")], ["lan.test:8080", "lan.test:80"]
    egress = {"allowed_hosts": hosts, "private_targets": private, "plain_targets": plain}
    assert cuts(asked, egress=egress) == [
        ("send requests to lan.test:80", PLAIN, "egress.plain_targets"),
        ("send requests to lan.test:8080", PLAIN, "egress.plain_targets"),
    ]


def test_where_skills_are_switched_off_that_is_said_first_and_by_its_setting() -> None:
    off = {"enabled": False, "fuel": 10, "max_fuel": 1_000}
    settings = msgspec.convert({"wasm": off}, Settings)
    nothing = {"asked": "run", "gets": "nothing at all while skills are switched off", "setting": "wasm.enabled"}
    modest = gets_less(artifact().manifest.capabilities, settings.wasm, settings.egress, settings.tools)
    assert [msgspec.to_builtins(one) for one in modest] == [nothing], "also of one that asks for nothing"
    greedy = artifact(capabilities="quotas = { fuel_budget = 2000 }").manifest.capabilities
    quotas = gets_less(greedy, settings.wasm, settings.egress, settings.tools)
    assert [msgspec.to_builtins(one) for one in quotas] == [
        nothing,
        {"asked": "have the quota fuel_budget = 2000", "gets": "1000", "setting": "wasm.max_fuel"},
    ]


def test_nothing_is_said_of_what_is_given_whole() -> None:
    asked = "quotas = { fuel_budget = 1_000, max_memory_bytes = 65_536, timeout_ms = 10, storage_bytes = 1 }"
    assert cuts(asked) == cuts("") == []
