"""What one sandboxed call may do, as a value. Nothing here looks at the machine."""

import re
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from palyra.errors import InvalidInput
from palyra.sandbox import limits
from palyra.sandbox.domain.receipt import Layer


class BadProfile(InvalidInput):
    code = "sandbox.bad_profile"
    hint = "a profile names absolute paths without .. and plain environment names"


# For a workspace that is no project's.
NAME_A_PROJECT: Final = (
    "go to the folder of a project, or name it with --workspace or workspace.root: a folder in /tmp or /home will do,"
    " these themselves will not"
)


class SandboxTier(StrEnum):
    B = "b"
    C = "c"


class EgressEnforcementMode(StrEnum):
    NONE = "none"
    PREFLIGHT = "preflight"
    STRICT = "strict"


class AppearingProtected(StrEnum):
    """What becomes of a protected name that was not there before the call and is there after it."""

    KEEP = "keep"
    MOVE_ASIDE = "move_aside"
    FAIL = "fail"


Bytes = Annotated[int, Meta(ge=1, le=limits.MAX_BYTES)]


class SandboxLimits(msgspec.Struct, frozen=True, kw_only=True):
    cpu_seconds: Annotated[int, Meta(ge=1, le=limits.MAX_CPU_SECONDS)] = limits.DEFAULT_CPU_SECONDS
    memory_bytes: Bytes = limits.DEFAULT_MEMORY_BYTES
    pids: Annotated[int, Meta(ge=limits.MIN_PIDS, le=limits.MAX_PIDS)] = limits.DEFAULT_PIDS
    open_files: Annotated[int, Meta(ge=limits.MIN_OPEN_FILES, le=limits.MAX_OPEN_FILES)] = limits.DEFAULT_OPEN_FILES
    file_bytes: Bytes = limits.DEFAULT_FILE_BYTES
    max_output_bytes: Annotated[int, Meta(ge=0, le=limits.MAX_OUTPUT_BYTES)] = limits.DEFAULT_OUTPUT_BYTES
    # How much of it stays with the result, where somebody sees the rest as it comes. None: all of it.
    kept_output_bytes: Annotated[int, Meta(ge=0)] | None = None
    timeout_ms: Annotated[int, Meta(ge=1, le=limits.MAX_TIMEOUT_MS)] = limits.DEFAULT_TIMEOUT_MS


# What Tier C means. A machine that cannot give one of these refuses the call instead of running it with less.
TIER_C_LAYERS: Final = frozenset(
    {
        Layer.USER_NAMESPACE,
        Layer.PID_NAMESPACE,
        Layer.MOUNT_NAMESPACE,
        Layer.IPC_NAMESPACE,
        Layer.UTS_NAMESPACE,
        Layer.CAPABILITIES,
        Layer.NO_NEW_PRIVS,
        Layer.SECCOMP,
        Layer.NEW_SESSION,
        Layer.MINIMAL_ROOT,
        Layer.WORKSPACE,
        Layer.PROTECTED_NAMES,
        Layer.ENVIRONMENT,
    }
)
TIER_B_LAYERS: Final = frozenset({Layer.RLIMITS, Layer.NO_NEW_PRIVS, Layer.SECCOMP, Layer.ENVIRONMENT})

# The variables that the plan sets itself: a profile cannot move them out from under the mounts.
RESERVED_ENVIRONMENT: Final = frozenset({"HOME", "PWD", "TMPDIR", "XDG_RUNTIME_DIR"})

# In the made-up root, which nobody can write: no link of anybody's lies on the way there.
EXTRA_FILES_ROOT: Final = "/etc/palyra"
_EXTRA_FILE: Final = re.compile(rf"{EXTRA_FILES_ROOT}/[A-Za-z0-9_][A-Za-z0-9._-]{{0,63}}")


class SandboxProfile(msgspec.Struct, frozen=True, kw_only=True):
    """``require`` is added to what the tier itself demands. ``tool_roots`` are read-only directories outside /usr."""

    workspace_root: str
    tier: SandboxTier = SandboxTier.C
    read_only: bool = False
    protected_names: tuple[str, ...] = ()
    limits: SandboxLimits = SandboxLimits()
    egress: EgressEnforcementMode = EgressEnforcementMode.STRICT
    allowed_egress_hosts: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    allow_interpreters: bool = False
    allowed_executables: tuple[str, ...] | None = None
    require: frozenset[Layer] = frozenset()
    appearing_protected: AppearingProtected = AppearingProtected.KEEP
    tool_roots: tuple[str, ...] = ()
    # Files of this call's own, as (path in the sandbox, content); Tier C shows them read-only beneath EXTRA_FILES_ROOT.
    extra_files: tuple[tuple[str, bytes], ...] = ()

    def __post_init__(self) -> None:
        _refuse_bad_path(self.workspace_root, "the workspace")
        if self.workspace_root == "/":
            raise BadProfile("the workspace cannot be the root of the file system", hint=NAME_A_PROJECT)
        if len(self.tool_roots) > limits.MAX_TOOL_ROOTS:
            raise BadProfile(f"at most {limits.MAX_TOOL_ROOTS} tool roots")
        for root in self.tool_roots:
            _refuse_bad_path(root, "a tool root")
        if len(self.env) > limits.MAX_EXTRA_ENVIRONMENT:
            raise BadProfile(f"at most {limits.MAX_EXTRA_ENVIRONMENT} environment variables")
        for name, value in self.env:
            _refuse_bad_variable(name, value)
        _refuse_bad_files(self.extra_files)

    @property
    def has_a_door(self) -> bool:
        """Whether it reaches hosts, through a door that lets just those through."""
        return self.egress is EgressEnforcementMode.STRICT and bool(self.allowed_egress_hosts)

    @property
    def required_layers(self) -> frozenset[Layer]:
        """What must hold or the call is refused: the tier's own layers, and those that policy adds."""
        wanted = TIER_C_LAYERS if self.tier is SandboxTier.C else TIER_B_LAYERS
        if self.tier is SandboxTier.C and self.egress is EgressEnforcementMode.STRICT:
            wanted |= {Layer.NETWORK_NAMESPACE, *((Layer.EGRESS,) if self.allowed_egress_hosts else ())}
        return wanted | self.require


def _refuse_bad_path(path: str, what: str) -> None:
    parts = path.split("/")[1:]
    if not path.startswith("/") or "\0" in path or (path != "/" and any(part in ("", ".", "..") for part in parts)):
        raise BadProfile(f"{what} must be an absolute path in its shortest spelling: {path!r}")


def _refuse_bad_files(files: tuple[tuple[str, bytes], ...]) -> None:
    if len(files) > limits.MAX_EXTRA_FILES or len({path for path, _ in files}) != len(files):
        raise BadProfile(f"at most {limits.MAX_EXTRA_FILES} extra files, each at a path of its own")
    for path, content in files:
        _refuse_bad_path(path, "an extra file")
        if not _EXTRA_FILE.fullmatch(path):
            raise BadProfile(f"an extra file lies directly in {EXTRA_FILES_ROOT} and has a plain name: {path!r}")
        if len(content) > limits.MAX_EXTRA_FILE_BYTES:
            raise BadProfile(f"{path} has more than {limits.MAX_EXTRA_FILE_BYTES} bytes")


def _refuse_bad_variable(name: str, value: str) -> None:
    plain = name.replace("_", "a")
    if not name or not plain.isascii() or not plain.isalnum() or name[0].isdigit():
        raise BadProfile(f"{name!r} is not the name of an environment variable")
    if name in RESERVED_ENVIRONMENT:
        raise BadProfile(f"{name} is set by the sandbox itself")
    if "\0" in value or len(value.encode("utf-8", "surrogateescape")) > limits.MAX_ENVIRONMENT_VALUE_BYTES:
        raise BadProfile(f"the value of {name} has a NUL or is too long")
