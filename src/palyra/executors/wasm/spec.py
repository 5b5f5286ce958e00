"""The limits of tier A, and the spec of ``plugin.run``."""

from typing import Any, Final

import msgspec

from palyra.errors import Denied, InvalidInput, LimitExceeded, Unavailable
from palyra.ids import Principal, ToolName
from palyra.limits import MAX_PLUGIN_TOOL_INPUT_BYTES
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.spec import AccessedResources, ToolCapability, ToolMetadata, ToolSpec, ToolTier
from palyra.policy.request import OPERATORS, EntityDirectory, EntityRef
from palyra.wasm.domain.limits import RuntimeLimits
from palyra.wasm.settings import WasmSettings

WASM_EXECUTOR: Final = "wasm"
ENFORCEABLE: Final = frozenset(("timeout_ms", "max_output_bytes", "memory_bytes", "egress", "read_only"))


def most_limits(wasm: WasmSettings) -> RuntimeLimits:
    return RuntimeLimits(
        fuel_budget=max(wasm.fuel, wasm.max_fuel),
        max_memory_bytes=wasm.memory_bytes,
        max_instances=wasm.max_instances,
    )


def default_limits(wasm: WasmSettings) -> RuntimeLimits:
    return msgspec.structs.replace(most_limits(wasm), fuel_budget=wasm.fuel)


PLUGIN_RUN: Final = "plugin.run"
_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 128}

INPUT_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "skill_id": {**_NAME, "description": "A skill in use whose module is run."},
        "module": {**_NAME, "description": "The module's file name in the skill; the first one without it."},
        "path": {
            "type": "string",
            "minLength": 1,
            "maxLength": 4096,
            "description": "A module file of the workspace instead; for operators, where wasm.workspace_modules is on.",
        },
        "tool": {**_NAME, "description": "The tool name that the module gets."},
        "input": {
            "description": "The JSON value that the module gets. It has no member _config: that is an operator's."
        },
    },
    "oneOf": [{"required": ["skill_id"]}, {"required": ["path"]}],
    "additionalProperties": False,
}
OUTPUT_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "output": {"description": "What the module returned, where that is JSON."},
        "text": {**_TEXT, "description": "What the module returned, where it is other text."},
        "exit_code": {"type": "integer", "description": "The exit code of a module without input and output."},
        "fuel_used": {**_COUNT, "description": "Instructions executed, about."},
        "peak_memory_bytes": {**_COUNT, "description": "The most memory the module had."},
        "module_sha256": {**_TEXT, "description": "The digest of the module that ran."},
    },
    "required": ["fuel_used", "peak_memory_bytes", "module_sha256"],
    "additionalProperties": False,
}


class WasmDisabled(Unavailable):
    code = "wasm.disabled"
    hint = "the setting wasm.enabled switches WebAssembly on"


class WorkspaceModulesRefused(Denied):
    code = "wasm.workspace_modules_refused"
    hint = "operators may run modules of the workspace where wasm.workspace_modules is on; others use skills"


class NoModule(InvalidInput):
    code = "wasm.no_module"
    hint = "name a skill in use, or a module file of the workspace"


class ModuleTooLarge(LimitExceeded):
    code = "wasm.module_too_large"
    hint = "modules are at most 32 MiB"


class WasmPluginRunnerPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The settings about plugins: whether they run, which modules, and with which limits."""

    enabled: bool
    workspace_modules: bool
    limits: RuntimeLimits
    timeout_ms: int

    @classmethod
    def of(cls, settings: WasmSettings) -> "WasmPluginRunnerPolicy":
        return cls(
            enabled=settings.enabled,
            workspace_modules=settings.workspace_modules,
            limits=default_limits(settings),
            timeout_ms=settings.timeout_ms,
        )

    def require_enabled(self) -> None:
        if not self.enabled:
            raise WasmDisabled("WebAssembly is switched off by the settings")

    def require_workspace_module(self, directory: EntityDirectory, principal: Principal) -> None:
        operates = EntityRef("Group", OPERATORS) in directory.principal(principal).parents
        if not self.workspace_modules or not operates:
            raise WorkspaceModulesRefused(f"{principal} may not run a module of the workspace")


def plugin_run_spec(settings: WasmSettings) -> ToolSpec:
    reserved = {BudgetKind.WASM_FUEL: default_limits(settings).fuel_budget}
    return ToolSpec(
        name=ToolName(PLUGIN_RUN),
        title="Run a WebAssembly module",
        description="Runs one module of a skill in use, or of the workspace, on a JSON value. It computes and nothing"
        " else: it gets no network, secrets, storage or channels. Skills' own tools are called by their names.",
        input_schema=INPUT_SCHEMA,
        output_schema=OUTPUT_SCHEMA,
        metadata=ToolMetadata(capabilities=frozenset({ToolCapability.FILESYSTEM_READ})),
        tier=ToolTier.A,
        other_tiers=frozenset({ToolTier.WORKER}),
        executor=WASM_EXECUTOR,
        max_input_bytes=MAX_PLUGIN_TOOL_INPUT_BYTES,
        enforceable=ENFORCEABLE,
        touches=lambda arguments: AccessedResources(paths=(arguments["path"],) if "path" in arguments else ()),
        reserves=lambda _arguments: reserved,
    )
