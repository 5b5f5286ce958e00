"""The tools this build has, and the executors behind them."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from palyra.egress.settings import EgressSettings
from palyra.executors import builtin
from palyra.executors.browser.spec import browser_specs
from palyra.executors.fetch.spec import fetch_spec
from palyra.executors.files.spec import FILE_TOOLS, FileTool
from palyra.executors.node.spec import Devices, node_invoke_spec
from palyra.executors.process.executor import build_process_specs
from palyra.executors.wasm.spec import plugin_run_spec
from palyra.ids import ToolName
from palyra.pipeline.catalog import Catalog
from palyra.pipeline.domain.call import ExecutionPlan, ExecutorOutcome
from palyra.pipeline.domain.spec import AccessedResources, ToolCapability, ToolMetadata, ToolSpec, ToolTier
from palyra.sandbox.settings import SandboxSettings
from palyra.wasm.settings import WasmSettings
from palyra.workspace.root import open_workspace

FILES_EXECUTOR = "files"
# File calls are short; more threads than this only fight over the disk.
MAX_FILE_THREADS = 8
READ_ONLY_OBLIGATION = "read_only"


def file_tool_spec(tool: FileTool) -> ToolSpec:
    return ToolSpec(
        name=ToolName(tool.name),
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        metadata=ToolMetadata(capabilities=frozenset(map(ToolCapability, tool.capabilities))),
        executor=FILES_EXECUTOR,
        other_tiers=frozenset({ToolTier.WORKER}),
        idempotent="filesystem_write" not in tool.capabilities,
        touches=_touched_by(tool),
        enforceable=frozenset(("timeout_ms", "max_output_bytes", READ_ONLY_OBLIGATION)),
    )


def file_spec(name: str) -> ToolSpec:
    """The spec of one file tool."""
    return next(file_tool_spec(tool) for tool in FILE_TOOLS if tool.name == name)


def _touched_by(tool: FileTool) -> Callable[[Mapping[str, Any]], AccessedResources]:
    return lambda arguments: AccessedResources(paths=tuple(tool.touches(dict(arguments))))


def builtin_catalog(
    sandbox: SandboxSettings | None = None,
    egress: EgressSettings | None = None,
    wasm: WasmSettings | None = None,
    devices: Callable[[], Devices] | None = None,
    browser: Sequence[ToolSpec] | None = None,
) -> Catalog:
    return Catalog(
        [
            *builtin.SPECS,
            *map(file_tool_spec, FILE_TOOLS),
            *build_process_specs(sandbox or SandboxSettings(), egress),
            fetch_spec(egress),
            plugin_run_spec(wasm or WasmSettings()),
            node_invoke_spec(devices),
            *(browser_specs(None) if browser is None else browser),
        ]
    )


class FilesExecutor:
    """Runs the file tools on threads of their own. A cancelled call is told so and waited for: it leaves no thread
    behind."""

    name = FILES_EXECUTOR
    keeps_deadline = False

    def __init__(self, protected_names: tuple[str, ...]) -> None:
        self._protected = protected_names
        self._tools = {tool.name: tool for tool in FILE_TOOLS}
        self._threads = ThreadPoolExecutor(MAX_FILE_THREADS, thread_name_prefix="palyra-files")

    async def execute(self, plan: ExecutionPlan) -> ExecutorOutcome:
        cancelled = threading.Event()
        work = asyncio.get_running_loop().run_in_executor(self._threads, self._run, plan, cancelled)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            cancelled.set()
            await asyncio.wait([work])
            raise

    def _run(self, plan: ExecutionPlan, cancelled: threading.Event) -> ExecutorOutcome:
        with open_workspace(
            Path(plan.workspace), self._protected, read_only=plan.obligations.read_only or False
        ) as workspace:
            result = self._tools[plan.tool].run(dict(plan.arguments), workspace, cancelled)
            return ExecutorOutcome(result=result, receipt=tuple(workspace.receipt()))

    def close(self) -> None:
        self._threads.shutdown(wait=True)
