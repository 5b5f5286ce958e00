"""The profile of a sandboxed call, its permissions as a value, and the receipt of the layers that held."""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from palyra.errors import InvalidInput, PalyraError, Unavailable
from palyra.sandbox import limits


class UnsupportedPlatform(Unavailable):
    """A layer that this call requires is not available here. ``details.layers`` names each one."""

    code = "sandbox.unsupported_platform"
    hint = "`palyra doctor` shows what this machine can enforce and how to get the rest"

    def __init__(self, message: str, *, hint: str | None = None, **details: Any) -> None:
        super().__init__(message, hint=hint, **{"kind": "unsupported_platform", **details})


class Layer(StrEnum):
    USER_NAMESPACE = "user_namespace"
    PID_NAMESPACE = "pid_namespace"
    NETWORK_NAMESPACE = "network_namespace"
    MOUNT_NAMESPACE = "mount_namespace"
    IPC_NAMESPACE = "ipc_namespace"
    UTS_NAMESPACE = "uts_namespace"
    CGROUP_NAMESPACE = "cgroup_namespace"
    CAPABILITIES = "capabilities"
    NO_NEW_PRIVS = "no_new_privs"
    SECCOMP = "seccomp"
    LANDLOCK = "landlock"
    RLIMITS = "rlimits"
    CGROUP_MEMORY = "cgroup_memory"
    CGROUP_PIDS = "cgroup_pids"
    NEW_SESSION = "new_session"
    NESTED_USERNS_OFF = "nested_userns_off"
    HOST_READ_ONLY = "host_read_only"
    MINIMAL_ROOT = "minimal_root"
    WORKSPACE = "workspace"
    PROTECTED_NAMES = "protected_names"
    ENVIRONMENT = "environment"
    EGRESS = "egress"
    OUTPUT_QUOTA = "output_quota"
    DEADLINE = "deadline"
    TREE_KILL = "tree_kill"


# Going through an enumeration itself takes ten times as long.
_LAYERS: Final = tuple(Layer)


class ReceiptLine(msgspec.Struct, frozen=True, kw_only=True):
    """``got`` states what was seen and how. ``held`` is whether that is at least what was asked."""

    layer: Layer
    asked: str
    got: str
    held: bool


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """At most one line for each layer, in the order in which the layers are declared."""

    lines: tuple[ReceiptLine, ...] = ()

    @classmethod
    def of(cls, lines: Iterable[ReceiptLine]) -> "Receipt":
        """Keep the later one of two lines for a layer: it was seen last."""
        last = {line.layer: line for line in lines}
        return cls(lines=tuple(last[layer] for layer in _LAYERS if layer in last))

    def with_lines(self, lines: Iterable[ReceiptLine]) -> "Receipt":
        return Receipt.of((*self.lines, *lines))

    def line(self, layer: Layer) -> ReceiptLine | None:
        return next((line for line in self.lines if line.layer is layer), None)

    def as_dicts(self) -> list[dict[str, Any]]:
        return [msgspec.to_builtins(line) for line in self.lines]


def find_unmet(receipt: Receipt, required: frozenset[Layer]) -> tuple[ReceiptLine, ...]:
    """Return the required layers that did not hold. One that the receipt does not mention was not enforced."""
    found = {line.layer: line for line in receipt.lines}
    silent = "not enforced"
    return tuple(
        found.get(layer) or ReceiptLine(layer=layer, asked="required", got=silent, held=False)
        for layer in _LAYERS
        if layer in required and not (layer in found and found[layer].held)
    )


def refuse_unmet(receipt: Receipt, required: frozenset[Layer], fixes: dict[Layer, str] | None = None) -> None:
    """Raise ``sandbox.unsupported_platform`` naming each required layer that did not hold, with its fix."""
    missing = find_unmet(receipt, required)
    if missing:
        raise unsupported(missing, fixes)


def unsupported(missing: Iterable[ReceiptLine], fixes: dict[Layer, str] | None = None) -> PalyraError:
    lines = tuple(missing)
    seen = "; ".join(f"{line.layer}: {line.got}" for line in lines)
    hints = [fixes[line.layer] for line in lines if fixes and fixes.get(line.layer)]
    return UnsupportedPlatform(
        f"what the call must have cannot be enforced here: {seen}",
        hint="; ".join(dict.fromkeys(hints)) or None,
        layers=[line.layer.value for line in lines],
    )


class BadProfile(InvalidInput):
    code = "sandbox.bad_profile"
    hint = "a profile names absolute paths without .. and plain environment names"


# For a workspace that is not a project.
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


class NewProtectedPolicy(StrEnum):
    """The treatment of a protected name that a call created."""

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
# Layers of which the sandbox itself has no line: the runner adds those of the control group and of the call's end.
LAYERS_OF_RUNNER: Final = frozenset(
    {Layer.CGROUP_MEMORY, Layer.CGROUP_PIDS, Layer.OUTPUT_QUOTA, Layer.DEADLINE, Layer.TREE_KILL}
)

# The variables that the plan sets itself: a profile cannot move them out from under the mounts.
RESERVED_ENVIRONMENT: Final = frozenset({"HOME", "PWD", "TMPDIR", "XDG_RUNTIME_DIR"})

# In the made root, which no program can write: no link lies on the way there.
EXTRA_FILES_ROOT: Final = "/etc/palyra"
VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
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
    appearing_protected: NewProtectedPolicy = NewProtectedPolicy.KEEP
    # Git's own files that exist are read-only too: for programs that go on while the person works in the folder.
    seals_git: bool = False
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
    def reaches_hosts(self) -> bool:
        """Whether it reaches hosts, through a network that leads to no others."""
        return self.egress is EgressEnforcementMode.STRICT and bool(self.allowed_egress_hosts)

    @property
    def required_layers(self) -> frozenset[Layer]:
        """The layers that must hold or the call is refused: the tier's own, and those that policy adds."""
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
    if not VARIABLE_NAME.fullmatch(name):
        raise BadProfile(f"{name!r} is not the name of an environment variable")
    if name in RESERVED_ENVIRONMENT:
        raise BadProfile(f"{name} is set by the sandbox itself")
    if "\0" in value or len(value.encode("utf-8", "surrogateescape")) > limits.MAX_ENVIRONMENT_VALUE_BYTES:
        raise BadProfile(f"the value of {name} has a NUL or is too long")
