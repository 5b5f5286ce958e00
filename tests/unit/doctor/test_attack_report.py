import msgspec
import pytest

from palyra.doctor.attacks.attempt import AttackClass
from palyra.doctor.attacks.verdict import AttackReport, Escaped, NotAttacked, Result, Verdict
from palyra.errors import ExitCode
from palyra.sandbox.domain.profile import SandboxTier


def verdict(name: str, result: Result, *, tier: SandboxTier = SandboxTier.C, promised: bool = True) -> Verdict:
    return Verdict(
        id=name,
        tier=tier,
        kind=AttackClass.FILES,
        title=name,
        result=result,
        layer="seccomp",
        evidence="seen",
        promised=promised,
    )


def report(*verdicts: Verdict) -> AttackReport:
    return AttackReport(verdicts=verdicts, user=1000, seconds=1.5)


def test_all_stopped() -> None:
    found = report(
        verdict("a.a", Result.BLOCKED),
        verdict("a.b", Result.NOT_APPLICABLE),
        verdict("a.a", Result.BLOCKED, tier=SandboxTier.B),
        verdict("a.c", Result.NOT_BLOCKED, tier=SandboxTier.B, promised=False),
    )
    found.raise_if_escaped()
    assert found.escapes == ()
    assert found.summary() == (
        "Tier B: 1 blocked, 0 not blocked, 1 not blocked and not promised, 0 not applicable\n"
        "Tier C: 1 blocked, 0 not blocked, 0 not blocked and not promised, 1 not applicable\n"
        "2 distinct attempts as uid 1000 in 1.5 s"
    )


def test_a_success_that_was_promised_to_be_stopped_is_an_error_with_the_whole_list() -> None:
    found = report(verdict("a.a", Result.BLOCKED), verdict("a.b", Result.NOT_BLOCKED))
    with pytest.raises(Escaped) as raised:
        found.raise_if_escaped()
    assert (raised.value.code, raised.value.exit_code) == ("doctor.escaped", ExitCode.FAILED)
    assert raised.value.message == "an attempt was not blocked: a.b (tier c)"
    assert [each["result"] for each in raised.value.details["attempts"]] == ["blocked", "not blocked"]
    msgspec.json.encode(raised.value.as_dict())


def test_a_tier_in_which_nothing_was_tried_has_not_held() -> None:
    found = report(verdict("a.a", Result.BLOCKED), verdict("a.a", Result.NOT_APPLICABLE, tier=SandboxTier.B))
    with pytest.raises(NotAttacked, match="tier b: seen"):
        found.raise_if_escaped()
    assert NotAttacked.exit_code is ExitCode.UNAVAILABLE


def test_the_document() -> None:
    document = report(verdict("a.a", Result.BLOCKED)).as_dict()
    assert document["attempts"] == [
        {
            "id": "a.a",
            "tier": "c",
            "kind": "files",
            "title": "a.a",
            "result": "blocked",
            "layer": "seccomp",
            "evidence": "seen",
            "promised": True,
        }
    ]
    assert (document["distinct_attempts"], document["user"]) == (1, 1000)
    assert document["tiers"][0]["blocked"] == 1
