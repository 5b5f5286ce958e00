"""Judge of egress, one for the sandbox, the fetch tool, skills, workers and the browser.

It decides whether a grant allows a target, whether each of its addresses may be dialled, and whether the connection
ended at one of them. It does no I/O: the code that resolves and dials calls it.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from palyra.egress.domain.address import canonical_address, judge_address, range_of
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.refusal import (
    AddressForbidden,
    EgressRefused,
    HostNotAllowed,
    NameUnresolved,
    PeerChanged,
    render,
)
from palyra.egress.domain.rules import HostRule, find_rule
from palyra.egress.domain.target import Target
from palyra.egress.limits import WEB_PORTS


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """The only addresses that may be dialled for a target: resolved once, each judged, in canonical text."""

    target: Target
    addresses: tuple[str, ...]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    outcome: Literal["passed", "refused", "skipped"]
    detail: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """``undecided``: the target is allowed, and its addresses were not judged.

    ``code`` and ``reason`` are those of the refusal that traffic to this target would get.
    """

    verdict: Literal["allowed", "refused", "undecided"]
    steps: tuple[Step, ...]
    code: str = ""
    reason: str = ""


class EgressProxyPolicyService:
    """``own_addresses`` returns this machine's present addresses, in canonical text."""

    def __init__(self, own_addresses: Callable[[], frozenset[str]]) -> None:
        self._own_addresses = own_addresses

    def judge_target(self, grant: EgressGrant, target: Target) -> HostRule:
        """Return the rule that allows the target, or raise a leaf of ``EgressRefused``.

        Where any public host is allowed, the rule is made for this target alone.
        """
        rule = _find_rule(grant, target)
        if rule is None:
            raise HostNotAllowed(_explain_no_rule(grant, target), **target.where)
        if target.is_address:
            self._judge_one(grant, target, target.host)
        return rule

    def judge_answers(self, grant: EgressGrant, target: Target, answers: Sequence[str]) -> Pin:
        """Return the addresses to dial. One forbidden address refuses all: no honest name has one among others."""
        if not answers:
            raise NameUnresolved(f"{target.host} has no address", **target.where)
        for answer in answers:
            self._judge_one(grant, target, answer)
        if len(answers) == 1:
            return Pin(target=target, addresses=(canonical_address(answers[0]),))
        return Pin(target=target, addresses=tuple(dict.fromkeys(map(canonical_address, answers))))

    def confirm_peer(self, pin: Pin, peer_address: str) -> None:
        """Raise ``PeerChanged`` unless the connection ended at one of the judged addresses."""
        try:
            if canonical_address(peer_address) in pin.addresses:
                return
        except AddressForbidden:
            pass
        raise PeerChanged(
            f"{pin.target.host} was to be reached at {', '.join(pin.addresses)} and ended at {render(peer_address)}",
            **pin.target.where,
            address=render(peer_address),
        )

    def explain(self, grant: EgressGrant, target: Target, answers: Sequence[str] | None) -> Explanation:
        """Judge as traffic would be, and return each step. ``answers`` None skips a name's addresses."""
        steps = [Step(name="target", outcome="passed", detail=_describe(target))]
        refusals: list[EgressRefused] = []
        rule = _find_rule(grant, target)
        if rule is None:
            refusals.append(HostNotAllowed(_explain_no_rule(grant, target), **target.where))
            steps.append(Step(name="rule", outcome="refused", detail=refusals[-1].message))
        else:
            steps.append(Step(name="rule", outcome="passed", detail=f"{rule} allows {target.authority}"))
        private = find_rule(grant.private_targets, target.host, target.port)
        if private is not None and _is_private_target(grant, target):
            steps.append(Step(name="private target", outcome="passed", detail=f"{private} opens private addresses"))
        if target.is_address:
            answers = (target.host,)
        elif answers is None:
            steps.append(Step(name="resolution", outcome="skipped", detail="the name was not looked up"))
        elif answers:
            steps.append(Step(name="resolution", outcome="passed", detail=f"{target.host} is {', '.join(answers)}"))
        else:
            refusals.append(NameUnresolved(f"{target.host} has no address", **target.where))
            steps.append(Step(name="resolution", outcome="refused", detail=refusals[-1].message))
        for answer in answers or ():
            steps.append(self._explain_address(grant, target, answer, refusals))
        if refusals:
            return Explanation(verdict="refused", steps=tuple(steps), code=refusals[0].code, reason=refusals[0].message)
        return Explanation(verdict="undecided" if answers is None else "allowed", steps=tuple(steps))

    def _explain_address(self, grant: EgressGrant, target: Target, answer: str, refusals: list[EgressRefused]) -> Step:
        name = f"address {render(answer)}"
        try:
            self._judge_one(grant, target, answer)
        except AddressForbidden as error:
            refusals.append(error)
            return Step(name=name, outcome="refused", detail=str(error.details["range"]))
        found = range_of(answer)
        return Step(
            name=name, outcome="passed", detail="public" if found is None else f"{found.name}, opened for this target"
        )

    def _judge_one(self, grant: EgressGrant, target: Target, address: str) -> None:
        allow_private = _is_private_target(grant, target)
        try:
            if target.is_address and address != target.host:
                raise AddressForbidden(
                    f"{render(address)} is not the address that was asked for",
                    address=render(address),
                    range="another address than the target's",
                )
            judge_address(address, allow_private=allow_private, own=self._own_addresses())
        except AddressForbidden as error:
            error.details |= target.where
            raise


def _find_rule(grant: EgressGrant, target: Target) -> HostRule | None:
    rule = find_rule(grant.rules, target.host, target.port)
    if rule is None and grant.any_public_host and target.port in WEB_PORTS:
        return HostRule(host=target.host, port=target.port)
    return rule


def _is_private_target(grant: EgressGrant, target: Target) -> bool:
    """Return whether a rule names this private target: ``any_public_host`` opens no private address."""
    private = grant.private_targets
    if not private or find_rule(private, target.host, target.port) is None:
        return False
    return not grant.any_public_host or find_rule(grant.rules, target.host, target.port) is not None


def _explain_no_rule(grant: EgressGrant, target: Target) -> str:
    named = [rule for rule in grant.rules if rule.names(target.host)]
    if named:
        ports = ", ".join(map(str, sorted({port for rule in named for port in rule.ports})))
        return f"{target.host} is allowed on port {ports} and not on {target.port}"
    return f"{target.authority} is not among the allowed hosts"


def _describe(target: Target) -> str:
    kind = "address" if target.is_address else "name"
    return f"{target.scheme}, the {kind} {target.host}, port {target.port}"
