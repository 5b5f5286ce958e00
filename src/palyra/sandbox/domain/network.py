"""The network of a sandbox with allowed hosts: its plan, and the judgement of what was seen there.

Pure. A strict sandbox has nothing but a loopback of its own. Where hosts are allowed, the daemon opens sockets that
listen on it before the program starts, and serves them from outside: a resolver, a proxy for programs that want one,
and every allowed port on every address of 127.0.0.0/8. All else in that network leads nowhere.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

import msgspec

from palyra.egress.domain.rules import HostRule
from palyra.errors import InvalidInput
from palyra.sandbox import limits
from palyra.sandbox.domain.profile import (
    Layer,
    ReceiptLine,
    SandboxProfile,
    SandboxTier,
    unsupported,
)

EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104  every address of the sandbox's own loopback, and there is no other
LOOPBACK: Final = "127.0.0.1"
_RESERVED: Final = frozenset({limits.SANDBOX_DNS_PORT, limits.SANDBOX_PROXY_PORT})

# The variables by which programs find another bundle of certificates than the system's.
CA_VARIABLES: Final = (
    "CARGO_HTTP_CAINFO", "CURL_CA_BUNDLE", "DENO_CERT", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "PIP_CERT",
    "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "npm_config_cafile",
)  # fmt: skip

_SHOWN_CHARS: Final = 80
_SHOWN_FAULTS: Final = 3
_SHOWN_HOSTS: Final = 3


class BadNetworkPlan(InvalidInput):
    code = "sandbox.bad_door"
    hint = f"allow at most {limits.MAX_ALLOWED_PORTS} ports, and neither {limits.SANDBOX_DNS_PORT} nor {limits.SANDBOX_PROXY_PORT}: those serve the sandbox itself"  # noqa: E501


class HostsNeedTierC(InvalidInput):
    """The tier and the hosts do not go together, on any machine."""

    code = "sandbox.hosts_need_tier_c"
    hint = (
        "run it in tier c, which opens just these hosts (`--tier c`, sandbox.tier); or allow none in tier b, which runs"
        " without them (`--allow-host`, sandbox.allowed_hosts)"
    )


class ListenerKind(StrEnum):
    TRANSPARENT = "transparent"
    DNS_UDP = "dns_udp"
    DNS_TCP = "dns_tcp"
    PROXY = "proxy"


class ListenerPlan(msgspec.Struct, frozen=True):
    """One socket to open in the sandbox's network."""

    kind: ListenerKind
    address: str
    port: int

    @property
    def is_udp(self) -> bool:
        return self.kind is ListenerKind.DNS_UDP


class NetworkPlan(msgspec.Struct, frozen=True, kw_only=True):
    """``ports`` are all ports of the allowed hosts. The egress service judges which host may be reached at which."""

    ports: tuple[int, ...]
    dns_port: int = limits.SANDBOX_DNS_PORT
    proxy_port: int = limits.SANDBOX_PROXY_PORT

    def listeners(self) -> tuple[ListenerPlan, ...]:
        """List the sockets. They lack SO_REUSEADDR and SO_REUSEPORT, so no program can bind over them."""
        return (
            *(ListenerPlan(ListenerKind.TRANSPARENT, EVERY_ADDRESS, port) for port in self.ports),
            ListenerPlan(ListenerKind.DNS_UDP, LOOPBACK, self.dns_port),
            ListenerPlan(ListenerKind.DNS_TCP, LOOPBACK, self.dns_port),
            ListenerPlan(ListenerKind.PROXY, LOOPBACK, self.proxy_port),
        )


class ListenerSeen(msgspec.Struct, frozen=True):
    """A returned socket as the kernel describes it. ``namespace`` is the network that it is in."""

    plan: ListenerPlan
    address: str
    port: int
    listening: bool
    shared: bool
    namespace: int


class NetworkSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The network of a waiting sandbox: its sockets, whether its loopback is up, and any route."""

    listeners: tuple[ListenerSeen, ...]
    loopback_up: bool
    routes: tuple[str, ...]


class NetworkUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic of one call, as its listener reported it.

    ``refusals`` are the first, as plain values with at least a code; ``refused`` counts all, ``violations`` the grave.
    """

    connections: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    credential_uses: int = 0
    refused: int = 0
    violations: int = 0
    refusals: tuple[dict[str, Any], ...] = ()


def plan_network(profile: SandboxProfile) -> NetworkPlan:
    """Plan the sockets of a profile that reaches hosts."""
    ports: set[int] = set()
    for raw in profile.allowed_egress_hosts:
        ports.update(HostRule.parse(raw).ports)
    if taken := sorted(ports & _RESERVED):
        raise BadNetworkPlan(f"port {taken[0]} cannot be allowed", port=taken[0])
    if len(ports) > limits.MAX_ALLOWED_PORTS:
        raise BadNetworkPlan(f"{len(ports)} different ports are allowed", ports=len(ports))
    return NetworkPlan(ports=tuple(sorted(ports)))


def list_argument_hosts(profile: SandboxProfile) -> tuple[str, ...]:
    """List the rules for hosts in arguments: the allowed ones and, where it has one, the sandbox's own proxy."""
    own = tuple(f"{name}:{limits.SANDBOX_PROXY_PORT}" for name in (LOOPBACK, "localhost"))
    return (*profile.allowed_egress_hosts, *(own if profile.reaches_hosts else ()))


def refuse_unserved(profile: SandboxProfile, *, served: bool) -> None:
    """Raise where nothing lets just the allowed hosts through: not these ports, not in this tier, or not here."""
    if not profile.reaches_hosts:
        return
    plan_network(profile)
    if profile.tier is SandboxTier.B:
        raise HostsNeedTierC(
            "tier b has no network of its own that could be opened to some hosts, and sandbox.allowed_hosts or"
            f" --allow-host names {_named(profile.allowed_egress_hosts)}",
            kind="invalid_input",
        )
    if not served:
        why = "nothing here serves the allowed hosts: this runner has no egress listener"
        raise unsupported([ReceiptLine(layer=Layer.EGRESS, asked=describe_egress(profile), got=why, held=False)])


def _named(hosts: tuple[str, ...]) -> str:
    more = len(hosts) - _SHOWN_HOSTS
    return ", ".join(hosts[:_SHOWN_HOSTS]) + (f" and {more} more" if more > 0 else "")


def describe_egress(profile: SandboxProfile) -> str:
    hosts = profile.allowed_egress_hosts
    return f"{profile.egress.value}, {len(hosts)} allowed hosts" if hosts else profile.egress.value


def judge_network(
    plan: NetworkPlan, seen: NetworkSeen | None, *, namespace: int, interfaces: Iterable[str]
) -> list[str]:
    """List everything that is wrong with the network before the program may start; an empty list lets it start."""
    if seen is None:
        return ["no socket was opened in it"]
    wrong = [f"an interface {name}" for name in interfaces if name != "lo"]
    wrong += [f"a route {route}" for route in seen.routes]
    if not seen.loopback_up:
        wrong.append("its loopback is down")
    if [each.plan for each in seen.listeners] != list(plan.listeners()):
        wrong.append("other sockets than planned were opened")
    for each in seen.listeners:
        wanted = each.plan
        if (each.address, each.port) != (wanted.address, wanted.port):
            wrong.append(f"{_render(wanted)} listens at {each.address}:{each.port}")
        if each.listening is wanted.is_udp:
            wrong.append(f"{_render(wanted)} does not listen")
        if each.shared:
            wrong.append(f"{_render(wanted)} can be bound over")
        if each.namespace != namespace:
            wrong.append(f"{_render(wanted)} is in net:[{each.namespace}]")
    return wrong


def describe_network(plan: NetworkPlan, wrong: list[str]) -> str:
    if wrong:
        return "; ".join(wrong[:_SHOWN_FAULTS])
    return f"only lo, no route, and sockets of ours: {', '.join(map(_render, plan.listeners()))}"


def _render(listener: ListenerPlan) -> str:
    return f"{listener.kind} {listener.address}:{listener.port}"


def complete_line(line: ReceiptLine, usage: NetworkUsage | None) -> ReceiptLine:
    """Complete the receipt's line after the call. ``usage`` None: the listener did not close in time."""
    if usage is None:
        got = f"{line.got}; the listener did not close in time and was cut"
        return ReceiptLine(layer=line.layer, asked=line.asked, got=got, held=False)
    said = [f"{usage.connections} connections, {usage.bytes_up} bytes up, {usage.bytes_down} down"]
    if usage.credential_uses:
        said.append(f"{usage.credential_uses} credentials added")
    if usage.refusals:
        named = [_refusal_text(each) for each in usage.refusals[: limits.MAX_REPORTED_REFUSALS]]
        said.append(f"{max(usage.refused, len(usage.refusals))} refused ({', '.join(named)})")
    return ReceiptLine(layer=line.layer, asked=line.asked, got=f"{line.got}; {'; '.join(said)}", held=line.held)


def _refusal_text(refusal: dict[str, Any]) -> str:
    where = ":".join(str(refusal[name])[:_SHOWN_CHARS] for name in ("host", "port") if refusal.get(name))
    return f"{refusal.get('code', 'refused')} {where}".strip()


def build_ca_environment(path: str) -> tuple[tuple[str, str], ...]:
    """Return variables for a profile's ``env`` that let the usual programs trust the bundle at this path."""
    return tuple((name, path) for name in CA_VARIABLES)
