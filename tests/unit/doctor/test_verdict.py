"""The judge: success by any sign, stopped only by a sign of it."""

import signal

import pytest

from palyra.doctor.attacks.attempt import AttackClass, Attempt
from palyra.doctor.attacks.verdict import Answer, Observed, Result, Verdict, judge, not_tried
from palyra.sandbox.domain.profile import Layer, SandboxTier

ATTEMPT = Attempt(
    id="files.x",
    kind=AttackClass.FILES,
    title="x",
    probe="read",
    c=(Layer.CGROUP_PIDS, Layer.SECCOMP, Layer.RLIMITS),
    b=(),
    ended_by=(int(signal.SIGKILL),),
    refused_by=("sandbox.timed_out",),
    not_for_root=frozenset({Layer.RLIMITS}),
)
ALL = frozenset(Layer)
STOPPED = Answer(escaped=False, evidence="EPERM", errno="EPERM")
THROUGH = Answer(escaped=True, evidence="got it")


def judged(
    attempt: Attempt = ATTEMPT, *, root: bool = False, tier: SandboxTier = SandboxTier.C, **seen: object
) -> Verdict:
    return judge(attempt, tier, Observed(**{"held": ALL, "exit_code": 0, **seen}), root=root)  # type: ignore[arg-type]


def test_the_probe_was_stopped() -> None:
    verdict = judged(answer=STOPPED)
    assert (verdict.result, verdict.layer, verdict.evidence) == (Result.BLOCKED, Layer.CGROUP_PIDS, "EPERM")
    assert verdict.promised


def test_a_trace_outside_outweighs_what_the_probe_says() -> None:
    verdict = judged(answer=STOPPED, traces=("the secret came out",))
    assert (verdict.result, verdict.evidence) == (Result.NOT_BLOCKED, "the secret came out")


def test_a_trace_outweighs_a_refusal_too() -> None:
    assert judged(refused="sandbox.timed_out", traces=("a process stayed",)).result is Result.NOT_BLOCKED


def test_the_probes_word_for_success_is_enough() -> None:
    assert judged(answer=THROUGH).result is Result.NOT_BLOCKED


def test_success_within_its_own_walls_is_none() -> None:
    inside = Attempt(
        id="files.y", kind=AttackClass.FILES, title="y", probe="create", c=(Layer.SECCOMP,), seen_outside=True
    )
    assert judged(inside, answer=THROUGH).result is Result.BLOCKED
    assert judged(inside, answer=THROUGH, traces=("outside/new appeared",)).result is Result.NOT_BLOCKED


@pytest.mark.parametrize("seen", [{}, {"exit_code": 1}, {"exit_code": None, "signal": int(signal.SIGSEGV)}])
def test_silence_proves_nothing(seen: dict[str, object]) -> None:
    assert judged(**seen).result is Result.NOT_APPLICABLE


def test_nothing_to_try_is_told_as_such() -> None:
    verdict = judged(answer=Answer(escaped=None, evidence="only x86-64 has this way in"))
    assert (verdict.result, verdict.layer) == (Result.NOT_APPLICABLE, "")


@pytest.mark.parametrize("seen", [{"exit_code": None, "signal": 9}, {"exit_code": 137}])
def test_the_signal_of_a_limit_is_a_sign_also_as_bubblewrap_tells_it(seen: dict[str, object]) -> None:
    verdict = judged(**seen)
    assert (verdict.result, verdict.evidence) == (Result.BLOCKED, "ended by SIGKILL")


def test_a_filter_that_kills_is_named() -> None:
    verdict = judged(exit_code=None, signal=int(signal.SIGSYS))
    assert (verdict.result, verdict.layer) == (Result.BLOCKED, Layer.SECCOMP)
    assert judged(answer=Answer(escaped=False, evidence="", errno="ENOSYS")).layer == Layer.SECCOMP


def test_a_known_refusal_is_a_sign_and_another_is_a_failure_to_try() -> None:
    assert judged(refused="sandbox.timed_out", message="late").result is Result.BLOCKED
    other = judged(refused="sandbox.spawn_failed", message="no such program", held=None)
    assert other.result is Result.NOT_APPLICABLE
    assert "could not be made" in other.evidence


def test_a_command_that_was_started_is_a_success_whatever_it_did() -> None:
    shell = Attempt(
        id="guards.x",
        kind=AttackClass.ENVIRONMENT,
        title="x",
        command=("sh",),
        c=(Layer.ENVIRONMENT,),
        refused_by=("sandbox.interpreter_denied",),
    )
    assert judged(shell, exit_code=1).result is Result.NOT_BLOCKED
    refused = judged(shell, refused="sandbox.interpreter_denied", message="no", held=None, exit_code=None)
    assert (refused.result, refused.layer) == (Result.BLOCKED, "interpreter guard")


def test_the_layer_named_is_one_that_was_in_force() -> None:
    verdict = judged(answer=STOPPED, held=frozenset({Layer.RLIMITS}))
    assert (verdict.layer, verdict.promised) == (Layer.RLIMITS, True)


def test_no_promise_where_no_layer_of_it_was_in_force() -> None:
    assert not judged(answer=THROUGH, held=frozenset()).promised
    assert not judged(answer=THROUGH, held=frozenset({Layer.RLIMITS}), root=True).promised
    unpromised = judged(answer=THROUGH, tier=SandboxTier.B)
    assert (unpromised.result, unpromised.promised, unpromised.layer) == (Result.NOT_BLOCKED, False, "not promised")


def test_what_was_not_tried_says_why() -> None:
    verdict = not_tried(ATTEMPT, SandboxTier.C, "no Python")
    assert (verdict.result, verdict.evidence, verdict.promised) == (Result.NOT_APPLICABLE, "no Python", True)
