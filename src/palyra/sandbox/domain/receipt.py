"""The receipt of a sandboxed call: for each layer what was asked, what was really got, and whether it held."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

import msgspec

from palyra.errors import PalyraError, Unavailable


class UnsupportedPlatform(Unavailable):
    """A layer that this call must have cannot be had here. ``details.layers`` names each one."""

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
    CGROUP_CPU = "cgroup_cpu"
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
    """``got`` says what was seen and how it was seen. ``held`` is whether that is at least what was asked."""

    layer: Layer
    asked: str
    got: str
    held: bool

    def as_dict(self) -> dict[str, Any]:
        return {"layer": self.layer.value, "asked": self.asked, "got": self.got, "held": self.held}


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """At most one line for each layer, in the order in which the layers are declared."""

    lines: tuple[ReceiptLine, ...] = ()

    @classmethod
    def of(cls, lines: Iterable[ReceiptLine]) -> "Receipt":
        """Of two lines for one layer the later one stands: it was written by who looked last."""
        last = {line.layer: line for line in lines}
        return cls(lines=tuple(last[layer] for layer in _LAYERS if layer in last))

    def with_lines(self, lines: Iterable[ReceiptLine]) -> "Receipt":
        return Receipt.of((*self.lines, *lines))

    def line(self, layer: Layer) -> ReceiptLine | None:
        return next((line for line in self.lines if line.layer is layer), None)

    def as_dicts(self) -> list[dict[str, Any]]:
        return [line.as_dict() for line in self.lines]


def unmet(receipt: Receipt, required: frozenset[Layer]) -> tuple[ReceiptLine, ...]:
    """A required layer that the receipt does not mention was not enforced."""
    found = {line.layer: line for line in receipt.lines}
    silent = "not enforced"
    return tuple(
        found.get(layer) or ReceiptLine(layer=layer, asked="required", got=silent, held=False)
        for layer in _LAYERS
        if layer in required and not (layer in found and found[layer].held)
    )


def refuse_unmet(receipt: Receipt, required: frozenset[Layer], fixes: dict[Layer, str] | None = None) -> None:
    """Raises ``sandbox.unsupported_platform`` naming each required layer that did not hold. ``fixes`` are for those
    that no machine could hold in this place."""
    missing = unmet(receipt, required)
    if missing:
        raise unsupported(missing, fixes)


def unsupported(missing: Iterable[ReceiptLine], fixes: dict[Layer, str] | None = None) -> PalyraError:
    lines = tuple(missing)
    said = "; ".join(f"{line.layer}: {line.got}" for line in lines)
    hints = [fixes[line.layer] for line in lines if fixes and fixes.get(line.layer)]
    return UnsupportedPlatform(
        f"what the call must have cannot be enforced here: {said}",
        hint="; ".join(dict.fromkeys(hints)) or None,
        layers=[line.layer.value for line in lines],
    )
