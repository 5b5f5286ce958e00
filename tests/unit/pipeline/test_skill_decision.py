from palyra.pipeline.authorize import combine_decisions
from palyra.policy.decision import Decision, MissingGrant, Obligations, Outcome


def said(outcome: Outcome, name: str, **more: object) -> Decision:
    return Decision(outcome=outcome, policies=(name,), reasons=(f"because {name}",), bundle_digest="d", **more)  # type: ignore[arg-type]


def test_both_have_to_allow_and_both_oblige() -> None:
    one = said(Outcome.ALLOW, "a", obligations=Obligations(timeout_ms=5, memory_bytes=9))
    both = combine_decisions(one, said(Outcome.ALLOW, "b", obligations=Obligations(timeout_ms=3)))
    assert (both.outcome, both.policies) == (Outcome.ALLOW, ("a", "b"))
    assert both.obligations == Obligations(timeout_ms=3, memory_bytes=9)


def test_the_stricter_outcome_speaks_for_itself() -> None:
    asks = said(Outcome.NEEDS_APPROVAL, "a")
    assert combine_decisions(said(Outcome.ALLOW, "b"), asks).policies == ("a",)
    missing = MissingGrant(leads_to=Outcome.ALLOW, permit="permit(...)")
    denied = combine_decisions(asks, said(Outcome.DENY, "c", missing_grant=missing))
    assert (denied.outcome, denied.policies, denied.missing_grant) == (Outcome.DENY, ("c",), missing)
