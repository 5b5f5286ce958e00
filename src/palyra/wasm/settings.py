"""The settings of WebAssembly, with their defaults and bounds."""

from typing import Annotated

import msgspec
from msgspec import Meta

from palyra.config.setting_types import Count, Millis, describe
from palyra.wasm.domain import limits as wasm


class WasmSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, describe("Whether WebAssembly, and with it skills, may be run at all.")] = True
    fuel: Annotated[Count, describe("Fuel of a call whose skill asks for none; one unit is about one instruction.")] = (
        wasm.RuntimeLimits().fuel_budget
    )
    max_fuel: Annotated[Count, describe("Most fuel that a skill may ask for.")] = wasm.DEFAULT_MAX_FUEL
    memory_bytes: Annotated[
        int,
        Meta(ge=wasm.WASM_PAGE_BYTES, le=wasm.RuntimeLimits().max_memory_bytes),
        describe("Most memory of one guest, all its memories together."),
    ] = wasm.RuntimeLimits().max_memory_bytes
    max_instances: Annotated[
        int,
        Meta(ge=1, le=wasm.RuntimeLimits().max_instances),
        describe("Guests at once; the next ones wait, and end with wasm.quota if no place becomes free."),
    ] = wasm.RuntimeLimits().max_instances
    workers: Annotated[int, Meta(ge=1, le=64), describe("Worker processes kept ready.")] = wasm.PoolSettings().ready
    timeout_ms: Annotated[Millis, describe("Deadline of a guest whose skill asks for none.")] = wasm.DEFAULT_TIMEOUT_MS
    workspace_modules: Annotated[
        bool, describe("Whether operators may run module files of the workspace with plugin.run.")
    ] = False
