"""Access to secrets on behalf of a call: the scope first, which no policy lifts, then policy, then the record."""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from palyra.errors import PalyraError
from palyra.ids import Principal, PrincipalKind
from palyra.policy.decision import Decision, Outcome, PolicyPort
from palyra.policy.request import APPROVED, Entity, EntityDirectory, EntityRef, PolicyRequest
from palyra.secret import Secret
from palyra.store.event import NewEvent
from palyra.store.port import Store
from palyra.vault.key_source import ScopeDenied, UseDenied, UseNeedsApproval
from palyra.vault.reference import ScopeKind, SecretRef, UseNote

if TYPE_CHECKING:
    from palyra.vault.vault import Vault

VAULT_USE: Final = "vault.use"


class SecretUse(msgspec.Struct, frozen=True, kw_only=True):
    """One use of a secret by a call.

    ``tool`` and ``skill`` are the entities of the call; the secret would be sent to ``host`` and ``port``.
    ``approved``: a person approved exactly this call, and saw that it uses this secret.
    """

    principal: Principal
    channel: str
    run: str = ""
    call: str = ""
    tool: Entity | None = None
    skill: Entity | None = None
    host: str = ""
    port: int = 0
    approved: bool = False

    def note(self, actor: str, decision: Decision) -> UseNote:
        return UseNote(
            actor=actor,
            principal=str(self.principal),
            run=self.run,
            call=self.call,
            channel=self.channel,
            policies=decision.policies,
            bundle_digest=decision.bundle_digest,
            **self.ends(),
        )

    def ends(self) -> dict[str, str]:
        """Return tool, skill and host, by which the journal names the use."""
        return {
            "tool": "" if self.tool is None else self.tool.uid.id,
            "skill": "" if self.skill is None else self.skill.uid.id,
            "host": f"{self.host}:{self.port}" if self.host else "",
        }


def require_scope(ref: SecretRef, use: SecretUse) -> None:
    """Raise ``ScopeDenied`` if the secret belongs to another principal, channel or skill. No policy lifts this."""
    owner = ref.scope.owner
    match ref.scope.kind:
        case ScopeKind.GLOBAL:
            return
        case ScopeKind.PRINCIPAL:
            fits = str(use.principal) == owner
        case ScopeKind.CHANNEL:
            fits = use.channel == owner
        case ScopeKind.SKILL:
            fits = use.skill is not None and use.skill.uid.id == owner
    if not fits:
        raise ScopeDenied(f"{ref} belongs to {ref.scope} alone", ref=str(ref))


def secret_entity(ref: SecretRef) -> Entity:
    """Return the secret's entity. Its owner is an entity too, so that policies can compare it."""
    attrs: dict[str, Any] = {"scope": str(ref.scope)}
    owner = ref.scope.owner
    match ref.scope.kind:
        case ScopeKind.PRINCIPAL:
            principal = Principal.parse(owner)
            if principal.kind is PrincipalKind.AGENT:
                attrs["agent"] = EntityRef("Agent", principal.id)
            else:
                attrs["user"] = EntityRef("User", principal.id)
        case ScopeKind.CHANNEL:
            attrs["channel"] = EntityRef("Channel", owner)
        case ScopeKind.SKILL:
            attrs["skill"] = EntityRef("Skill", owner)
        case ScopeKind.GLOBAL:
            pass
    return Entity(uid=EntityRef("Secret", str(ref)), attrs=attrs)


def use_request(directory: EntityDirectory, ref: SecretRef, use: SecretUse) -> PolicyRequest:
    channel = directory.channel(use.channel)
    context: dict[str, Any] = {APPROVED: use.approved, "channel": channel.uid, "run": use.run}
    entities = [channel]
    if use.tool is not None:
        context["tool"] = use.tool.uid
        entities.append(use.tool)
    if use.skill is not None:
        context["skill"] = use.skill.uid
        entities.append(use.skill)
    if use.host:
        host = Entity(uid=EntityRef("Host", f"{use.host}:{use.port}"), attrs={"name": use.host, "port": use.port})
        context["host"] = host.uid
        entities.append(host)
    return PolicyRequest(
        principal=directory.principal(use.principal),
        action=VAULT_USE,
        resource=secret_entity(ref),
        context=context,
        entities=tuple(entities),
    )


def refusal_of(ref: SecretRef, use: SecretUse, decision: Decision) -> PalyraError | None:
    reasons = ", ".join(decision.reasons)
    details: dict[str, Any] = {"ref": str(ref), "policies": list(decision.policies)}
    match decision.outcome:
        case Outcome.ALLOW:
            return None
        case Outcome.NEEDS_APPROVAL:
            return UseNeedsApproval(f"{use.principal} may use {ref} only with a person's approval", **details)
        case Outcome.DENY:
            return UseDenied(f"policy does not let {use.principal} use {ref}: {reasons}", **details)


class DecidedSecrets:
    """Secrets behind the decision ``vault.use``: scope first, then policy, then the record, and only then the value."""

    def __init__(
        self, vault: "Vault", policy: PolicyPort, directory: EntityDirectory, store: Store, *, actor: str
    ) -> None:
        self._vault = vault
        self._policy = policy
        self._directory = directory
        self._store = store
        self._actor = actor

    async def reveal(self, ref: SecretRef, use: SecretUse) -> Secret:
        """Reveal a secret, or record and raise ``ScopeDenied``, ``UseDenied`` or ``UseNeedsApproval``."""
        try:
            require_scope(ref, use)
        except ScopeDenied as refusal:
            await self._record(ref, use, outcome="deny", code=refusal.code, policies=())
            raise
        decision = self._policy.decide(use_request(self._directory, ref, use))
        refused = refusal_of(ref, use, decision)
        if refused is not None:
            await self._record(ref, use, outcome=decision.outcome.value, code=refused.code, policies=decision.policies)
            raise refused
        return await self._vault.reveal(ref, note=use.note(self._actor, decision))

    def allows(self, ref: SecretRef, use: SecretUse) -> bool:
        """Return whether scope and policy allow this use now. Nothing is revealed, so nothing is recorded."""
        try:
            require_scope(ref, use)
        except ScopeDenied:
            return False
        return self._policy.decide(use_request(self._directory, ref, use)).outcome is Outcome.ALLOW

    async def _record(
        self, ref: SecretRef, use: SecretUse, *, outcome: str, code: str, policies: tuple[str, ...]
    ) -> None:
        event = NewEvent(
            kind="vault.use_denied",
            actor=self._actor,
            principal=str(use.principal),
            run=use.run,
            call=use.call,
            payload={
                "ref": str(ref),
                "outcome": outcome,
                "code": code,
                "channel": use.channel,
                **use.ends(),
                "policies": list(policies),
            },
        )
        await self._store.transact(lambda tx: tx.append(event))
