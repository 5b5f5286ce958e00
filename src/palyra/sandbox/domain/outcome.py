"""How a sandboxed process ended, or why it never began.

Every refusal has a kind, and every kind one leaf of the error tree, ``sandbox.<kind>``, which says the kind again in
its details. ``unsupported_platform`` is raised where layers are compared with what the machine can do, in receipt.py.
"""

from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from palyra.errors import Denied, Failed, InvalidInput, LimitExceeded, PalyraError
from palyra.sandbox.domain.network import DoorUsage
from palyra.sandbox.domain.profile import SandboxTier
from palyra.sandbox.domain.receipt import Receipt, UnsupportedPlatform


class SandboxProcessRunErrorKind(StrEnum):
    DISABLED = "disabled"
    UNSUPPORTED_PLATFORM = "unsupported_platform"
    INVALID_INPUT = "invalid_input"
    EXECUTABLE_DENIED = "executable_denied"
    INTERPRETER_DENIED = "interpreter_denied"
    WORKSPACE_SCOPE_DENIED = "workspace_scope_denied"
    EGRESS_DENIED = "egress_denied"
    QUOTA_EXCEEDED = "quota_exceeded"
    TIMED_OUT = "timed_out"
    SPAWN_FAILED = "spawn_failed"
    RUNTIME_FAILURE = "runtime_failure"


class ProcessOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """``exit_code`` is None where a signal ended the program. ``killed_by`` names the limit for which we ended it."""

    exit_code: int | None
    signal: int | None
    stdout: bytes
    stderr: bytes
    stdout_truncated: bool
    stderr_truncated: bool
    duration_ms: int
    tier: SandboxTier
    backend: str
    receipt: Receipt
    killed_by: str | None = None
    # What went through the door, where the call had one.
    egress: DoorUsage | None = None


class _OfKind(PalyraError):
    """Puts the kind into the details, and carries what the program had done where it was started at all."""

    kind: ClassVar[SandboxProcessRunErrorKind]

    def __init__(
        self, message: str, *, hint: str | None = None, outcome: ProcessOutcome | None = None, **details: Any
    ) -> None:
        super().__init__(message, hint=hint, **{"kind": self.kind.value, **details})
        self.outcome = outcome


class SandboxDisabled(_OfKind, Denied):
    code = "sandbox.disabled"
    kind = SandboxProcessRunErrorKind.DISABLED
    hint = "an operator switched off running processes"


class InvalidCommand(_OfKind, InvalidInput):
    code = "sandbox.invalid_input"
    kind = SandboxProcessRunErrorKind.INVALID_INPUT
    hint = "see the tool's input schema"


class ExecutableDenied(_OfKind, Denied):
    code = "sandbox.executable_denied"
    kind = SandboxProcessRunErrorKind.EXECUTABLE_DENIED
    hint = "run a program that the profile lists, or ask an operator to list this one in allowed_executables"


class InterpreterDenied(_OfKind, Denied):
    code = "sandbox.interpreter_denied"
    kind = SandboxProcessRunErrorKind.INTERPRETER_DENIED
    hint = "run the program itself, without a shell or another program around it; or ask for allow_interpreters"


class WorkspaceScopeDenied(_OfKind, Denied):
    code = "sandbox.workspace_scope_denied"
    kind = SandboxProcessRunErrorKind.WORKSPACE_SCOPE_DENIED
    hint = "name files beneath the workspace; links that lead out of it are followed before they are judged"


class EgressDenied(_OfKind, Denied):
    code = "sandbox.egress_denied"
    kind = SandboxProcessRunErrorKind.EGRESS_DENIED
    hint = "name only hosts in allowed_egress_hosts, spelled plainly and without user or password"


class QuotaExceeded(_OfKind, LimitExceeded):
    code = "sandbox.quota_exceeded"
    kind = SandboxProcessRunErrorKind.QUOTA_EXCEEDED
    hint = "what was captured up to the limit is in the result; print less, or write to a file"


class ProcessTimedOut(_OfKind, LimitExceeded):
    code = "sandbox.timed_out"
    kind = SandboxProcessRunErrorKind.TIMED_OUT
    hint = "ask for a longer timeout_ms within the maximum, or start it in the background"
    http_status = 504


class SpawnFailed(_OfKind, Failed):
    code = "sandbox.spawn_failed"
    kind = SandboxProcessRunErrorKind.SPAWN_FAILED
    hint = "check that the program exists inside the sandbox and may be executed"
    http_status = 422


class RuntimeFailure(_OfKind, Failed):
    code = "sandbox.runtime_failure"
    kind = SandboxProcessRunErrorKind.RUNTIME_FAILURE
    hint = "the sandbox itself failed; `palyra doctor` checks its parts"


ERROR_OF_KIND: dict[SandboxProcessRunErrorKind, type[PalyraError]] = {
    SandboxProcessRunErrorKind.UNSUPPORTED_PLATFORM: UnsupportedPlatform,
    **{
        leaf.kind: leaf
        for leaf in (
            SandboxDisabled,
            InvalidCommand,
            ExecutableDenied,
            InterpreterDenied,
            WorkspaceScopeDenied,
            EgressDenied,
            QuotaExceeded,
            ProcessTimedOut,
            SpawnFailed,
            RuntimeFailure,
        )
    },
}
