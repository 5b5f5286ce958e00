"""Refusals of egress: one leaf of the error tree per reason, and the value that the journal keeps.

A leaf is raised with ``host`` and ``port`` where they are known. ``violation`` marks refusals that an honest, working
program does not cause: they are counted per call, and on a worker they lead to quarantine.
"""

from typing import ClassVar

import msgspec

from palyra.egress.limits import MAX_SHOWN_CHARS
from palyra.errors import Denied


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """One refusal as the journal, the receipt and the usage report show it."""

    code: str
    host: str = ""
    port: int = 0
    detail: str = ""


def render(text: str) -> str:
    """Cut a stranger's text to the length that a refusal shows."""
    return text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + "…"


class EgressRefused(Denied):
    """Traffic that must not go out, or must not go on. ``host`` and ``port`` in the details say where to."""

    violation: ClassVar[bool] = False

    def refusal(self) -> Refusal:
        host, port = self.details.get("host"), self.details.get("port")
        return Refusal(
            code=self.code,
            host=render(host) if isinstance(host, str) else "",
            port=port if isinstance(port, int) else 0,
            detail=render(self.message),
        )


class HostNotAllowed(EgressRefused):
    code = "egress.host_not_allowed"
    hint = "ask the operator to add the host, and its port if it is neither 80 nor 443, to egress.allowed_hosts"
    violation = True


class OddTarget(EgressRefused):
    code = "egress.odd_target"
    hint = "write the host plainly: letters, digits and hyphens, or an address in its usual form; no user, no escapes"
    violation = True


class SchemeNotAllowed(EgressRefused):
    code = "egress.scheme_not_allowed"
    hint = "use http or https; other protocols go by a rule that names their port"


class AddressForbidden(EgressRefused):
    code = "egress.address_forbidden"
    hint = "only public addresses are reached; private ones need the host in egress.private_targets, some never open"
    violation = True


class PeerChanged(EgressRefused):
    code = "egress.peer_changed"
    hint = "the connection ended at an address that was not judged; look for a redirecting firewall on this machine"
    violation = True


class NameUnresolved(EgressRefused):
    code = "egress.name_unresolved"
    hint = "check the spelling and this machine's DNS, or give the addresses in egress.static_hosts"


class ServerNameMismatch(EgressRefused):
    code = "egress.server_name_mismatch"
    hint = "the TLS server name must be the host that was asked for"
    violation = True


class HostHeaderMismatch(EgressRefused):
    code = "egress.host_header_mismatch"
    hint = "the Host header must name the host that was asked for"
    violation = True


class RequestNotAllowed(EgressRefused):
    code = "egress.request_not_allowed"
    hint = "this host takes only some methods or paths; ask the operator to add a rule to egress.request_rules"
    violation = True


class RequestOverridden(EgressRefused):
    code = "egress.request_overridden"
    hint = "send the request with its real method, path and host, and without the header or parameter named here"
    violation = True


class MalformedTraffic(EgressRefused):
    code = "egress.malformed_traffic"
    hint = "the bytes are not the protocol they claim to be, or two programs could read them differently"
    violation = True


class ByteBudgetSpent(EgressRefused):
    code = "egress.byte_budget_spent"
    hint = "the call moved all the bytes it was given; raise egress.max_call_bytes or the run's budget"


class TooManyTunnels(EgressRefused):
    code = "egress.too_many_tunnels"
    hint = "close connections that are not used, or raise egress.max_tunnels"


class HandshakeTimeout(EgressRefused):
    code = "egress.handshake_timeout"
    hint = "the client did not finish saying where it wants to go"


class IdleTimeout(EgressRefused):
    code = "egress.idle_timeout"
    hint = "nothing moved for egress.idle_seconds"


class PolicyChanged(EgressRefused):
    code = "egress.policy_changed"
    hint = "the rules that allowed this connection are no longer in force"


class Unreachable(EgressRefused):
    code = "egress.unreachable"
    hint = "the host is allowed and did not answer; try again, or check the network of the machine Palyra runs on"


class CredentialMissing(EgressRefused):
    code = "egress.credential_missing"
    hint = "store the secret with palyra vault put, under the reference that the binding names"


class CredentialNotAllowed(EgressRefused):
    code = "egress.credential_not_allowed"
    hint = "the secret is bound to other hosts, methods or paths, or policy denies its use here"
    violation = True
