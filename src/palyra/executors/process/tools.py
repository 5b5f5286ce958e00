"""The specs of the tools that run programs."""

from palyra.egress.settings import EgressSettings
from palyra.executors.process import spec
from palyra.executors.process.executor import PROCESS_EXECUTOR, STARTING, find_accesses, find_reserves
from palyra.ids import ToolName
from palyra.limits import MAX_PROCESS_RUNNER_TOOL_INPUT_BYTES
from palyra.pipeline.domain.spec import ToolCapability, ToolMetadata, ToolSpec, ToolTier
from palyra.sandbox.settings import SandboxSettings

_ENFORCEABLE = frozenset(("timeout_ms", "max_output_bytes", "memory_bytes", "cpu_seconds", "egress", "read_only"))


def build_process_specs(settings: SandboxSettings, egress: EgressSettings | None = None) -> list[ToolSpec]:
    """Build the four specs. Running programs needs approval; reading and stopping those of the own run does not."""
    runs = {ToolCapability.PROCESS_EXEC, ToolCapability.FILESYSTEM_READ}
    if not settings.read_only:
        runs.add(ToolCapability.FILESYSTEM_WRITE)
    if settings.egress != "strict" or settings.allowed_hosts:
        runs.add(ToolCapability.NETWORK)
    return [
        ToolSpec(
            name=ToolName(name),
            title=title,
            description=description,
            input_schema=input_schema,
            output_schema=output_schema,
            metadata=ToolMetadata(
                capabilities=frozenset(runs) if name in STARTING else frozenset({ToolCapability.ARTIFACTS_READ})
            ),
            tier=ToolTier(settings.tier),
            # No call could read or stop a background program on a worker.
            other_tiers=frozenset({ToolTier.B, ToolTier.C} | ({ToolTier.WORKER} if name == "process.run" else set())),
            executor=PROCESS_EXECUTOR,
            max_input_bytes=MAX_PROCESS_RUNNER_TOOL_INPUT_BYTES,
            changes_state=name == "process.stop",
            touches=find_accesses(settings, egress, name),
            reserves=find_reserves(settings, egress, name),
            enforceable=_ENFORCEABLE,
        )
        for name, (title, description, input_schema, output_schema) in spec.TEXTS.items()
    ]
