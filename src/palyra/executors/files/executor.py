"""The executor of the file tools."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from palyra.executors.files.spec import FILE_TOOLS, FILES_EXECUTOR
from palyra.pipeline.domain.call import ExecutionPlan, ExecutorOutcome
from palyra.workspace.root import open_workspace

# File calls are short; more threads than this only fight over the disk.
MAX_FILE_THREADS = 8


class FilesExecutor:
    """Runs each file tool on a thread. A cancelled call waits for its thread, and leaves none behind."""

    name = FILES_EXECUTOR
    keeps_deadline = False

    def __init__(self, protected_names: tuple[str, ...]) -> None:
        self._protected = protected_names
        self._tools = FILE_TOOLS
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
        read_only = plan.obligations.read_only or False
        root = Path(plan.workspace)
        with open_workspace(root, self._protected, read_only=read_only, decided=plan.places) as workspace:
            result = self._tools[plan.tool].run(dict(plan.arguments), workspace, cancelled)
            return ExecutorOutcome(result=result, receipt=tuple(workspace.receipt()))

    def close(self) -> None:
        self._threads.shutdown(wait=True)
