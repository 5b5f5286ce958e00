"""Settings of egress: keys, defaults, bounds, and one line on each.

Validation, ``palyra config show`` and the reference page all read these types.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from palyra.config.setting_types import Count, describe
from palyra.egress import limits as egress
from palyra.egress.domain.credential import CredentialBindingPlan
from palyra.egress.domain.request_rules import RequestRule

_LONGEST_RULE: Final = egress.MAX_HOST_CHARS + len("*.:65535")
HostTexts = tuple[Annotated[str, Meta(min_length=1, max_length=_LONGEST_RULE)], ...]
HostName = Annotated[str, Meta(min_length=1, max_length=egress.MAX_HOST_CHARS)]
Addresses = Annotated[tuple[str, ...], Meta(min_length=1, max_length=egress.MAX_STATIC_ADDRESSES)]


class EgressSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    allowed_hosts: Annotated[
        HostTexts,
        describe(
            "The most that anything may reach, as HOST (ports 80 and 443), HOST:PORT or *.HOST; empty is nothing."
        ),
    ] = ()
    private_targets: Annotated[
        HostTexts,
        describe("Those of the allowed hosts that may have addresses on private networks or on this machine."),
    ] = ()
    plain_targets: Annotated[
        HostTexts,
        describe(
            "Those of the allowed hosts, as HOST:PORT, that skills speak to without TLS, attached secrets included."
        ),
    ] = ()
    static_hosts: Annotated[
        dict[HostName, Addresses], describe("Names with addresses of their own, which are judged as any other.")
    ] = {}
    bindings: Annotated[
        tuple[CredentialBindingPlan, ...],
        describe("Secrets of the vault that the proxy adds to requests, and the requests each is for."),
    ] = ()
    request_rules: Annotated[
        tuple[RequestRule, ...],
        describe("Hosts that take only some requests, by methods and paths; inspect = true ends TLS for them."),
    ] = ()
    shared_suffixes: Annotated[
        tuple[HostName, ...],
        describe("Names such as github.io, beneath which anybody has sites, that a rule *.NAME may open all the same."),
    ] = ()
    max_tunnels: Annotated[
        int, Meta(ge=1, le=egress.MAX_TUNNELS), describe("Connections one call may have open at once.")
    ] = egress.DEFAULT_MAX_TUNNELS
    idle_seconds: Annotated[
        float,
        Meta(gt=0, le=egress.MAX_IDLE_SECONDS),
        describe("Seconds after which a connection that moves nothing ends."),
    ] = egress.DEFAULT_IDLE_SECONDS
    max_call_bytes: Annotated[Count, describe("Bytes one call may send and receive.")] = egress.DEFAULT_MAX_CALL_BYTES
    upstream: Annotated[
        str, describe("The proxy of this network, as http://HOST:PORT or socks5://HOST:PORT; empty means none.")
    ] = ""

    ca_file: Annotated[
        str, describe("Certificate authorities to trust besides the system's, as a PEM file; empty means none.")
    ] = ""
