"""The egress grant of a call, and the call as policies see it, for programs, ``http.fetch`` and skills."""

from palyra.egress.domain.credential import CredentialBindingPlan
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.request_rules import rules_for
from palyra.egress.domain.rules import HostRule, parse_rules
from palyra.egress.policy_judge import CallOfGrant
from palyra.egress.settings import EgressSettings
from palyra.ids import Principal
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import ExecutionPlan
from palyra.pipeline.domain.spec import AccessedResources, ToolSpec
from palyra.policy.request import Entity, EntityDirectory


def grant_of(
    plan: ExecutionPlan,
    settings: EgressSettings,
    rules: tuple[HostRule, ...],
    bindings: tuple[CredentialBindingPlan, ...] = (),
) -> EgressGrant:
    """Grant the call its hosts, within the bytes that were reserved for it. Without a reservation it moves no byte."""
    return EgressGrant(
        grant_id=plan.call_id,
        principal=plan.principal,
        run=plan.run_id,
        call=plan.call_id,
        tool=plan.tool,
        rules=rules,
        private_targets=parse_rules(settings.private_targets),
        bindings=bindings,
        request_rules=rules_for(settings.request_rules, rules),
        max_bytes=min(settings.max_call_bytes, plan.granted.get(BudgetKind.EGRESS_BYTES, 0)),
        max_tunnels=settings.max_tunnels,
    )


def call_of(
    plan: ExecutionPlan,
    spec: ToolSpec,
    directory: EntityDirectory,
    *,
    touched: AccessedResources | None = None,
    skill: Entity | None = None,
) -> CallOfGrant:
    """Describe the call to policies. ``touched`` are the resources that its own arguments name."""
    metadata = spec.metadata
    capabilities = frozenset(capability.value for capability in metadata.capabilities)
    touched = touched or AccessedResources()
    return CallOfGrant(
        principal=Principal.parse(plan.principal),
        channel=plan.channel,
        tool=directory.tool(plan.tool, capabilities, metadata.sensitive, plan.tier.value),
        approved=plan.approved,
        skill=skill,
        hosts=touched.hosts,
        secrets=touched.secrets,
    )
