"""The plan of a network with allowed hosts, and the faults of one that was seen."""

from typing import Any

import msgspec
import pytest

from palyra.egress.domain.rules import BadHostRule
from palyra.sandbox import limits
from palyra.sandbox.domain.network import (
    CA_VARIABLES,
    BadNetworkPlan,
    HostsNeedTierC,
    ListenerKind,
    ListenerSeen,
    NetworkPlan,
    NetworkSeen,
    NetworkUsage,
    build_ca_environment,
    complete_line,
    describe_egress,
    describe_network,
    judge_network,
    plan_network,
    refuse_unserved,
)
from palyra.sandbox.domain.profile import (
    EgressEnforcementMode,
    Layer,
    ReceiptLine,
    SandboxProfile,
    SandboxTier,
    UnsupportedPlatform,
)

NAMESPACE = 4026532000
LINE = ReceiptLine(layer=Layer.EGRESS, asked="strict", got="only lo", held=True)


def profile(*hosts: str, **changes: Any) -> SandboxProfile:
    return SandboxProfile(workspace_root="/w", allowed_egress_hosts=hosts, **changes)


def plan_of(*hosts: str) -> NetworkPlan:
    return plan_network(profile(*hosts))


def test_ports_are_those_that_any_rule_opens() -> None:
    assert plan_of("a.example").ports == (80, 443)
    assert plan_of("a.example", "*.b.example:8443", "c.example:22", "d.example:443").ports == (22, 80, 443, 8443)
    listeners = plan_of("a.example:22").listeners()
    assert [(each.kind, each.address, each.port) for each in listeners] == [
        (ListenerKind.TRANSPARENT, "0.0.0.0", 22),
        (ListenerKind.DNS_UDP, "127.0.0.1", 53),
        (ListenerKind.DNS_TCP, "127.0.0.1", 53),
        (ListenerKind.PROXY, "127.0.0.1", 1080),
    ]


def test_no_hosts_are_reached_without_rules_or_where_the_network_is_not_shut() -> None:
    assert not profile().reaches_hosts
    for mode in (EgressEnforcementMode.NONE, EgressEnforcementMode.PREFLIGHT):
        assert not profile("a.example", egress=mode).reaches_hosts


@pytest.mark.parametrize("hosts", [("a.example:53",), ("a.example", "b.example:1080")])
def test_the_doors_own_ports_are_not_a_hosts(hosts: tuple[str, ...]) -> None:
    with pytest.raises(BadNetworkPlan):
        plan_network(profile(*hosts))


def test_ports_are_bounded_and_rules_are_rules() -> None:
    most = [f"a.example:{2000 + number}" for number in range(limits.MAX_ALLOWED_PORTS)]
    assert len(plan_of(*most).ports) == limits.MAX_ALLOWED_PORTS
    with pytest.raises(BadNetworkPlan):
        plan_network(profile(*most, "a.example:1999"))
    with pytest.raises(BadHostRule):
        plan_network(profile("*"))


def test_hosts_that_nobody_serves_are_refused_by_the_layer() -> None:
    with pytest.raises(UnsupportedPlatform) as refused:
        refuse_unserved(profile("a.example"), served=False)
    assert refused.value.details["layers"] == ["egress"]
    refuse_unserved(profile("a.example"), served=True)
    refuse_unserved(profile(), served=False)
    refuse_unserved(profile("a.example", tier=SandboxTier.B, egress=EgressEnforcementMode.PREFLIGHT), served=False)


@pytest.mark.promise("P-obligations")
@pytest.mark.parametrize("served", [True, False])
def test_hosts_in_tier_b_are_refused_for_the_tier_and_not_for_the_machine(served: bool) -> None:
    names = [f"{letter}.example" for letter in "abcde"]
    with pytest.raises(HostsNeedTierC) as refused:
        refuse_unserved(profile(*names, tier=SandboxTier.B), served=served)
    error = refused.value
    assert (error.code, error.details["kind"]) == ("sandbox.hosts_need_tier_c", "invalid_input")
    assert "tier b has no network of its own" in error.message and "machine" not in error.message
    assert "sandbox.allowed_hosts" in error.message and "a.example, b.example, c.example and 2 more" in error.message
    assert "--tier c" in error.hint and "doctor" not in error.hint


def test_an_allowed_host_makes_the_egress_layer_required() -> None:
    assert Layer.EGRESS in profile("a.example").required_layers
    assert Layer.EGRESS not in profile().required_layers
    assert describe_egress(profile("a.example")) == "strict, 1 allowed hosts"
    assert describe_egress(profile()) == "strict"


PLAN = NetworkPlan(ports=(443,))
SEEN = NetworkSeen(
    listeners=tuple(
        ListenerSeen(each, each.address, each.port, not each.is_udp, False, NAMESPACE) for each in PLAN.listeners()
    ),
    loopback_up=True,
    routes=(),
)


def faults(seen: NetworkSeen | None, interfaces: tuple[str, ...] = ("lo",)) -> list[str]:
    return judge_network(PLAN, seen, namespace=NAMESPACE, interfaces=interfaces)


def with_first(**changes: Any) -> NetworkSeen:
    first = msgspec.structs.replace(SEEN.listeners[0], **changes)
    return msgspec.structs.replace(SEEN, listeners=(first, *SEEN.listeners[1:]))


def test_what_was_planned_and_seen_has_no_fault() -> None:
    assert faults(SEEN) == []
    assert describe_network(PLAN, []).endswith(
        "transparent 0.0.0.0:443, dns_udp 127.0.0.1:53, dns_tcp 127.0.0.1:53, proxy 127.0.0.1:1080"
    )


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (None, "no socket"),
        (msgspec.structs.replace(SEEN, loopback_up=False), "loopback is down"),
        (msgspec.structs.replace(SEEN, routes=("00000000 over eth0",)), "a route 00000000 over eth0"),
        (msgspec.structs.replace(SEEN, listeners=SEEN.listeners[1:]), "other sockets than planned"),
        (with_first(port=444), "listens at 0.0.0.0:444"),
        (with_first(address="127.0.0.1"), "listens at 127.0.0.1:443"),
        (with_first(listening=False), "does not listen"),
        (with_first(shared=True), "can be bound over"),
        (with_first(namespace=1), "is in net:[1]"),
    ],
)
def test_every_fault_is_named(seen: NetworkSeen | None, said: str) -> None:
    found = faults(seen)
    assert any(said in each for each in found), found
    assert said in describe_network(PLAN, found)


def test_another_interface_is_a_fault() -> None:
    assert faults(SEEN, ("lo", "eth0")) == ["an interface eth0"]


def test_the_line_after_the_call_tells_what_went_through_and_stays_short() -> None:
    refusal = {"code": "egress.host_not_allowed", "host": "x" * 500, "port": 443}
    usage = NetworkUsage(
        connections=2, bytes_up=10, bytes_down=20, credential_uses=1, refused=1000, refusals=(refusal,) * 50
    )
    line = complete_line(LINE, usage)
    assert line.held and "2 connections, 10 bytes up, 20 down" in line.got and "1 credentials added" in line.got
    assert "1000 refused (egress.host_not_allowed xxx" in line.got and len(line.got) < 2000
    assert "refused" not in complete_line(LINE, NetworkUsage()).got
    assert not complete_line(LINE, None).held


def test_the_usual_variables_name_a_bundle() -> None:
    assert build_ca_environment("/etc/palyra/ca.pem") == tuple((name, "/etc/palyra/ca.pem") for name in CA_VARIABLES)
    profile("a.example", env=build_ca_environment("/etc/palyra/ca.pem"))
