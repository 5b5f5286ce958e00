"""The secrets that a request's plan asks for, each decided and recorded by whoever holds them, and asked for once."""

from palyra.egress.grant import EgressGrant
from palyra.egress.injection import InjectionPlan
from palyra.egress.ports import SecretSource
from palyra.egress.refusal import CredentialMissing
from palyra.egress.target import Target
from palyra.secret import Secret


async def revealed(secrets: SecretSource, grant: EgressGrant, plan: InjectionPlan, target: Target) -> dict[str, Secret]:
    """By their references. One that is missing is fatal only where its binding, or the caller's own text, needs it."""
    values: dict[str, Secret] = {}
    missing: set[str] = set()
    for one in plan.injections:
        needed = one.required or bool(one.written)
        if one.secret_ref in values or (one.secret_ref in missing and not needed):
            continue
        try:
            values[one.secret_ref] = await secrets.reveal(grant, one.secret_ref, target)
        except CredentialMissing:
            if needed:
                raise
            missing.add(one.secret_ref)
    return values
