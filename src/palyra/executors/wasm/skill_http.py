"""Requests of skills, with the same judge, dialler, policy and credentials as ``http.fetch``.

A handle stands for one line of the skill's manifest, and its requests go to that host only: the guest gets redirects
back. Through the handle of a line with a star the guest names the host. The guest attaches secrets by their handles.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from palyra.egress.client.http_client import Answer, Fetch, FetchClient, Reached
from palyra.egress.client.request import ContentFormat, FetchAccess, FetchRequest, RedirectMode
from palyra.egress.domain.credential import CredentialBindingPlan
from palyra.egress.domain.events import Refused
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.header_rules import accept_headers, fold_name
from palyra.egress.domain.injection import UNSCANNABLE
from palyra.egress.domain.refusal import EgressRefused
from palyra.egress.domain.rules import HostRule, common, find_rule, parse_rules
from palyra.egress.domain.target import Target
from palyra.egress.protocols.http1_request import WebAddress
from palyra.egress.proxy.dial import Dialler
from palyra.executors.fetch.executor import BoundCredentials, DialledConnector
from palyra.skills.package.capabilities import host_meant
from palyra.wasm.domain.host_interface import GuestRequest, GuestResponse, HostRefusal, Status

_HTTPS_PORT: Final = 443
_HTTP_PORT: Final = 80
_WITHOUT_BODY: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_ALWAYS_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_MAX_HEADERS: Final = 64
_PLACEHOLDER: Final = "{{vault:"


def target_of(rule: HostRule, plain: tuple[HostRule, ...]) -> Target:
    """Return the target of requests to a host: over TLS, except on port 80 and for the operator's ``plain`` hosts."""
    port = _port_of(rule)
    without_tls = port == _HTTP_PORT or find_rule(plain, rule.host, port) is not None
    return Target.of(rule.host, port, scheme="http" if without_tls else "https")


def is_in_clear(target: Target, plain: tuple[HostRule, ...]) -> bool:
    """Return whether a secret would travel without TLS and without the operator's permission for this host."""
    return target.scheme == "http" and find_rule(plain, target.host, target.port) is None


def _port_of(rule: HostRule) -> int:
    return _HTTPS_PORT if rule.port is None else rule.port


def find_reachable(hosts: tuple[str, ...], allowed: tuple[str, ...]) -> tuple[HostRule, ...]:
    """Return the hosts of a manifest that the operator's list allows too. A line with a star may be allowed in part."""
    ceiling = parse_rules(allowed)
    found: dict[HostRule, None] = {}
    for rule in parse_rules(hosts):
        if rule.below:
            found |= dict.fromkeys(both for other in ceiling if (both := common(rule, other)) is not None)
        elif find_rule(ceiling, rule.host, _port_of(rule)) is not None:
            found[rule] = None
    return tuple(found)


class SkillHttp:
    """The requests of one call of a skill.

    ``grant`` has the rules and bounds of the call, without bindings. ``plain`` are the hosts that are reached without
    TLS; ``may_carry_secrets`` returns whether a header was approved for secrets.
    """

    def __init__(
        self,
        client: FetchClient,
        dialler: Dialler,
        credentials: BoundCredentials,
        grant: EgressGrant,
        *,
        plain: tuple[HostRule, ...],
        may_carry_secrets: Callable[[str], bool],
    ) -> None:
        self._client = client
        self._dialler = dialler
        self._credentials = credentials
        self._grant = grant
        self._plain = plain
        self._may_carry_secrets = may_carry_secrets
        self.spent = 0
        self.reached: list[Reached] = []

    async def send(self, host: str, request: GuestRequest) -> GuestResponse:
        rule, path = host_meant(host, request.path)
        target = target_of(rule, self._plain)
        if request.body and request.method in _WITHOUT_BODY:
            raise HostRefusal(Status.BAD_REQUEST)
        if self.spent >= self._grant.max_bytes:
            raise HostRefusal(Status.QUOTA)
        bindings = _bindings(request, target)
        if request.secrets and is_in_clear(target, self._plain):
            raise HostRefusal(Status.DENIED)
        if not all(self._may_carry_secrets(attached.header) for attached in request.secrets):
            raise HostRefusal(Status.DENIED)
        grant = msgspec.structs.replace(self._grant, max_bytes=self._grant.max_bytes - self.spent, bindings=bindings)
        access = FetchAccess(
            grant=grant, connector=DialledConnector(self._dialler, target), credentials=self._credentials
        )
        fetch = self._client.fetch(access, _fetch_request(request, target, path))
        try:
            await fetch.run()
        except EgressRefused as refusal:
            self._client.observer.observe(grant, Refused.of(refusal, "fetch"))
            raise
        finally:
            self.spent += fetch.budget.spent
            self.reached += fetch.reached
        return _response(fetch, request.max_response_bytes)

    def receipt(self) -> list[dict[str, Any]]:
        if not self.reached:
            return []
        secrets = [f"{ref} to {each.authority}" for each in self.reached for ref in each.secrets]
        places = dict.fromkeys(f"{each.authority} at {each.address}" for each in self.reached)
        lines = [
            {"layer": "egress", "asked": "hosts of the manifest at judged addresses", "got": ", ".join(places)},
            {"layer": "network bytes", "asked": f"at most {self._grant.max_bytes}", "got": str(self.spent)},
        ]
        if secrets:
            lines.append({"layer": "credentials", "asked": "attached by handle", "got": ", ".join(secrets)})
        return lines


def _bindings(request: GuestRequest, target: Target) -> tuple[CredentialBindingPlan, ...]:
    """Make a binding for each attached secret, for this host and port only.

    The guest chooses the header. It has to be one that the guest may set itself, and must not change the encoding of
    the answer, which is searched for secrets.
    """
    bindings = []
    for attached in request.secrets:
        accept_headers({attached.header: ""})
        if fold_name(attached.header) in UNSCANNABLE:
            raise HostRefusal(Status.BAD_REQUEST)
        binding = CredentialBindingPlan(
            header_name=attached.header,
            secret_ref=attached.secret.name,
            hosts=(str(HostRule(target.host, target.port)),),
            prefix=attached.prefix,
        )
        binding.check()
        bindings.append(binding)
    return tuple(bindings)


def _fetch_request(request: GuestRequest, target: Target, path: str) -> FetchRequest:
    headers = dict(request.headers)
    if len(headers) != len(request.headers) or any(_PLACEHOLDER in value for value in headers.values()):
        raise HostRefusal(Status.BAD_REQUEST)
    body: bytes | None = request.body
    if not request.body and request.method not in _ALWAYS_WITH_BODY:
        body = None
    return FetchRequest(
        address=WebAddress.parse(f"{target}{path}"),
        method=request.method,
        headers=accept_headers(headers),
        body=body,
        max_bytes=request.max_response_bytes,
        redirect=RedirectMode.MANUAL,
        format=ContentFormat.RAW_BASE64,
    )


def _response(fetch: Fetch, most: int) -> GuestResponse:
    answer: Answer | None = fetch.answer
    if answer is None:
        raise HostRefusal(Status.FAILED)
    content = fetch.redactions.whole(answer.content)
    if len(content) > most:
        raise HostRefusal(Status.TOO_LARGE)
    if answer.truncated:
        raise HostRefusal(Status.FAILED)
    # A server can also repeat a secret in the name of a header.
    headers = tuple(
        (
            fetch.redactions.name(name.encode()).decode("utf-8", "replace").lower(),
            fetch.redactions.whole(value.encode()).decode("utf-8", "replace"),
        )
        for name, value in answer.headers[:_MAX_HEADERS]
    )
    fetch.note_redactions()
    return GuestResponse(status=answer.status, headers=headers, body=content)
