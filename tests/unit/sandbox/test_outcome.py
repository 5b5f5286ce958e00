import pytest

from palyra.errors import Denied, ExitCode, Failed, InvalidInput, LimitExceeded, PalyraError, Unavailable
from palyra.sandbox.domain.process_run import ERROR_OF_KIND, ProcessOutcome, QuotaExceeded, SandboxProcessRunErrorKind
from palyra.sandbox.domain.profile import Receipt, SandboxTier

BRANCHES = {
    "disabled": Denied,
    "unsupported_platform": Unavailable,
    "invalid_input": InvalidInput,
    "executable_denied": Denied,
    "interpreter_denied": Denied,
    "workspace_scope_denied": Denied,
    "egress_denied": Denied,
    "quota_exceeded": LimitExceeded,
    "timed_out": LimitExceeded,
    "spawn_failed": Failed,
    "runtime_failure": Failed,
}


@pytest.mark.parametrize("kind", SandboxProcessRunErrorKind)
def test_every_kind_has_one_leaf_on_its_branch(kind: SandboxProcessRunErrorKind) -> None:
    leaf = ERROR_OF_KIND[kind]
    error = leaf("why", argument="args[0]")
    assert issubclass(leaf, BRANCHES[kind.value])
    assert leaf.code == f"sandbox.{kind.value}" and PalyraError.registry[leaf.code] is leaf
    assert error.as_dict()["details"] == {"kind": kind.value, "argument": "args[0]"}
    assert error.hint


def test_denials_and_limits_have_their_exit_codes() -> None:
    codes = {kind.value: leaf.exit_code for kind, leaf in ERROR_OF_KIND.items()}
    assert codes["interpreter_denied"] == ExitCode.DENIED and codes["quota_exceeded"] == ExitCode.LIMIT


def test_a_quota_error_carries_what_was_captured() -> None:
    outcome = ProcessOutcome(
        exit_code=None,
        signal=9,
        stdout=b"part",
        stderr=b"",
        stdout_truncated=True,
        stderr_truncated=False,
        duration_ms=3,
        tier=SandboxTier.C,
        backend="bubblewrap",
        receipt=Receipt(),
        killed_by="max_output_bytes",
    )
    error = QuotaExceeded("too much", outcome=outcome)
    assert error.outcome is outcome and "outcome" not in error.details
