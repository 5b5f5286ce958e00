"""The grant of one call and who stands behind it, made in one place for programs, http.fetch and skills."""

from palyra.config.settings import EgressSettings
from palyra.daemons.policed_egress import CallOfGrant
from palyra.egress.credential import CredentialBindingPlan
from palyra.egress.grant import EgressGrant
from palyra.egress.rules import HostRule, parse_rules
from palyra.identity.principal import Principal
from palyra.policy.entities import Entity, EntityDirectory
from palyra.tools.budget import BudgetKind
from palyra.tools.call import ExecutionPlan
from palyra.tools.spec import ToolSpec, Touches


def grant_of(
    plan: ExecutionPlan,
    settings: EgressSettings,
    rules: tuple[HostRule, ...],
    bindings: tuple[CredentialBindingPlan, ...] = (),
) -> EgressGrant:
    """What a call may reach, within the bytes that were reserved for it: without a reservation it moves none."""
    return EgressGrant(
        grant_id=plan.call_id,
        principal=plan.principal,
        run=plan.run_id,
        call=plan.call_id,
        tool=plan.tool,
        rules=rules,
        private_targets=parse_rules(settings.private_targets),
        bindings=bindings,
        max_bytes=min(settings.max_call_bytes, plan.granted.get(BudgetKind.EGRESS_BYTES, 0)),
        max_tunnels=settings.max_tunnels,
    )


def call_of(
    plan: ExecutionPlan,
    spec: ToolSpec,
    directory: EntityDirectory,
    *,
    touched: Touches | None = None,
    skill: Entity | None = None,
) -> CallOfGrant:
    """The call as policies see it. ``touched`` is what its own arguments name, where they name anything."""
    metadata = spec.metadata
    capabilities = frozenset(capability.value for capability in metadata.capabilities)
    touched = touched or Touches()
    return CallOfGrant(
        principal=Principal.parse(plan.principal),
        channel=plan.channel,
        tool=directory.tool(plan.tool, capabilities, metadata.sensitive, plan.tier.value),
        approved=plan.approved,
        skill=skill,
        hosts=touched.hosts,
        secrets=touched.secrets,
    )
