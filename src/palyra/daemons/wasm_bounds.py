"""What every call of tier A is bound by, whatever it runs."""

from typing import Final

import msgspec

from palyra.config.settings import WasmSettings
from palyra.wasm.limits import RuntimeLimits

WASM_EXECUTOR: Final = "wasm"
ENFORCEABLE: Final = frozenset(("timeout_ms", "max_output_bytes", "memory_bytes", "egress", "read_only"))


def most_limits(wasm: WasmSettings) -> RuntimeLimits:
    """The most that any guest gets, whatever its manifest asks for."""
    return RuntimeLimits(
        fuel_budget=max(wasm.fuel, wasm.max_fuel),
        max_memory_bytes=wasm.memory_bytes,
        max_instances=wasm.max_instances,
    )


def default_limits(wasm: WasmSettings) -> RuntimeLimits:
    return msgspec.structs.replace(most_limits(wasm), fuel_budget=wasm.fuel)
