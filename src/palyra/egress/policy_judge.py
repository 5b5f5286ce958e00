"""Egress judge that asks policy: the host list first, then the decision ``egress.connect``.

The list is the operator's ceiling. A policy narrows it for one principal, tool or run. Policy decides each connection,
so that a change of policy holds from the next one on.
"""

from collections import Counter
from collections.abc import Callable
from typing import Protocol

import msgspec

from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.domain.refusal import CredentialMissing, CredentialNotAllowed, HostNotAllowed
from palyra.egress.domain.rules import HostRule, find_rule, parse_rules
from palyra.egress.domain.target import Target
from palyra.egress.limits import MAX_CREDENTIAL_USES_PER_CALL
from palyra.errors import Denied, NeedsApproval, PalyraError
from palyra.ids import Principal
from palyra.policy.decision import Decision, Outcome, PolicyPort
from palyra.policy.request import APPROVED, Entity, EntityDirectory, EntityRef, PolicyRequest
from palyra.secret import Secret
from palyra.vault.access import SecretUse
from palyra.vault.reference import SecretRef

EGRESS_CONNECT = "egress.connect"


class CallOfGrant(msgspec.Struct, frozen=True, kw_only=True):
    """The call behind a grant, as policies see it.

    ``hosts`` and ``secrets`` are those that the call's own arguments name: the approver saw them. An approval covers
    these and nothing else, even where the call may reach more.
    """

    principal: Principal
    channel: str
    tool: Entity
    approved: bool
    skill: Entity | None = None
    hosts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()

    def approved_for(self, target: Target) -> bool:
        return self.approved and find_rule(parse_rules(self.hosts), target.host, target.port) is not None


class GrantsInUse:
    """The call of each grant, while the call runs."""

    def __init__(self) -> None:
        self._calls: dict[str, CallOfGrant] = {}
        self._uses: Counter[str] = Counter()

    def enter(self, grant_id: str, call: CallOfGrant) -> None:
        self._calls[grant_id] = call

    def leave(self, grant_id: str) -> None:
        self._calls.pop(grant_id, None)
        self._uses.pop(grant_id, None)

    def of(self, grant: EgressGrant, target: Target) -> CallOfGrant:
        try:
            return self._calls[grant.grant_id]
        except KeyError:
            raise HostNotAllowed("the call that was allowed this has ended", **target.where) from None

    def count_use(self, grant: EgressGrant, target: Target) -> None:
        """Bound the journal entries of one call: each use of a secret is one, allowed or not."""
        if self._uses[grant.grant_id] >= MAX_CREDENTIAL_USES_PER_CALL:
            raise CredentialNotAllowed(
                f"this call has asked for credentials {MAX_CREDENTIAL_USES_PER_CALL} times already",
                **target.where,
            )
        self._uses[grant.grant_id] += 1


class PolicedEgress(EgressProxyPolicyService):
    def __init__(
        self,
        own_addresses: Callable[[], frozenset[str]],
        policy: PolicyPort,
        directory: EntityDirectory,
        grants: GrantsInUse,
    ) -> None:
        super().__init__(own_addresses)
        self._policy = policy
        self._directory = directory
        self._grants = grants

    def judge_target(self, grant: EgressGrant, target: Target) -> HostRule:
        rule = super().judge_target(grant, target)
        decision = self.decide(grant, target)
        if decision.outcome is not Outcome.ALLOW:
            reasons = ", ".join(decision.reasons) or "nothing permits it"
            raise HostNotAllowed(
                f"policy does not let {grant.principal} connect to {target.authority}: {reasons}",
                **target.where,
                policies=list(decision.policies),
            )
        return rule

    def decide(self, grant: EgressGrant, target: Target) -> Decision:
        """Put ``egress.connect`` to policy, under the call of the grant."""
        return self._policy.decide(connect_request(self._directory, self._grants.of(grant, target), grant, target))


def connect_request(directory: EntityDirectory, call: CallOfGrant, grant: EgressGrant, target: Target) -> PolicyRequest:
    channel = directory.channel(call.channel)
    host = Entity(uid=EntityRef("Host", target.authority), attrs={"name": target.host, "port": target.port})
    return PolicyRequest(
        principal=directory.principal(call.principal),
        action=EGRESS_CONNECT,
        resource=host,
        context={
            APPROVED: call.approved_for(target),
            "channel": channel.uid,
            "run": grant.run,
            "scheme": target.scheme,
            "tool": call.tool.uid,
            **({} if call.skill is None else {"skill": call.skill.uid}),
        },
        entities=(channel, call.tool) if call.skill is None else (channel, call.tool, call.skill),
    )


class RevealsSecrets(Protocol):
    """The vault behind the decision ``vault.use``."""

    async def reveal(self, ref: SecretRef, use: SecretUse) -> Secret: ...


class GrantedSecrets:
    """The secrets of bindings, for the proxy and the fetch tool: decided, recorded and revealed for one call."""

    def __init__(self, secrets: RevealsSecrets, grants: GrantsInUse) -> None:
        self._secrets = secrets
        self._grants = grants

    async def reveal(self, grant: EgressGrant, secret_ref: str, target: Target) -> Secret:
        call = self._grants.of(grant, target)
        self._grants.count_use(grant, target)
        use = SecretUse(
            principal=call.principal,
            channel=call.channel,
            run=grant.run,
            call=grant.call,
            tool=call.tool,
            skill=call.skill,
            **target.where,
            approved=call.approved and secret_ref in call.secrets,
        )
        try:
            return await self._secrets.reveal(SecretRef.parse(secret_ref), use)
        except (Denied, NeedsApproval) as error:
            raise CredentialNotAllowed(error.message, **target.where) from error
        except PalyraError as error:
            raise CredentialMissing(f"{secret_ref} is not available: {error.message}", **target.where) from error
