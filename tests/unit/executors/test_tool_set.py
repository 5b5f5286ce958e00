"""The tools of this build, and the threads that run the file tools."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from palyra.errors import PalyraError
from palyra.executors.files.executor import FilesExecutor
from palyra.executors.files.spec import FILE_TOOLS, FILES_EXECUTOR
from palyra.executors.tool_set import builtin_catalog
from palyra.json_schema import SchemaMismatch
from palyra.pipeline.domain.call import ExecutionPlan
from palyra.pipeline.domain.spec import ToolCapability
from palyra.policy.decision import Obligations
from palyra.workspace import limits
from palyra.workspace.settings import PROTECTED_NAMES


def plan(workspace: Path, tool: str, read_only: bool = False, **arguments: Any) -> ExecutionPlan:
    return ExecutionPlan(
        call_id="c",
        run_id="r",
        tool=tool,
        arguments=arguments,
        workspace=str(workspace),
        timeout_ms=1_000,
        max_output_bytes=1_000_000,
        obligations=Obligations(read_only=read_only),
    )


def test_every_file_tool_is_sensitive_and_can_be_held_to_reading() -> None:
    catalog = builtin_catalog()
    assert [str(spec.name) for spec in catalog.specs() if not spec.name.startswith("browser.")] == [
        "echo", "fs.list", "fs.patch", "fs.read", "fs.search", "fs.write", "http.fetch", "node.invoke",
        "plugin.run", "process.logs", "process.run", "process.start", "process.stop", "sleep",
    ]  # fmt: skip
    for name in FILE_TOOLS:
        spec = catalog.entry(name).spec
        assert spec.metadata.sensitive and spec.executor == FILES_EXECUTOR and "read_only" in spec.enforceable
        assert spec.idempotent is (ToolCapability.FILESYSTEM_WRITE not in spec.metadata.capabilities)


def test_what_a_call_would_touch_is_known_before_it_runs() -> None:
    touches = builtin_catalog().entry("fs.write").spec.touches
    assert touches({"path": "./a//b.txt", "content": "x"}).paths == ("a/b.txt",)
    with pytest.raises(PalyraError):
        touches({"path": "../outside", "content": "x"})


async def test_a_write_happens_beneath_the_workspace_and_the_receipt_says_what_held(tmp_path: Path) -> None:
    executor = FilesExecutor(PROTECTED_NAMES)
    try:
        outcome = await executor.execute(plan(tmp_path, "fs.write", path="a.txt", content="hello"))
        assert (tmp_path / "a.txt").read_text() == "hello" and outcome.receipt
    finally:
        executor.close()


async def test_a_read_only_plan_writes_nothing_and_protected_names_hold(tmp_path: Path) -> None:
    executor = FilesExecutor(PROTECTED_NAMES)
    try:
        for each in (
            plan(tmp_path, "fs.write", read_only=True, path="a.txt", content="x"),
            plan(tmp_path, "fs.write", path=".git/hooks/pre-commit", content="x"),
            plan(tmp_path, "fs.write", path=".env.local", content="x"),
        ):
            with pytest.raises(PalyraError):
                await executor.execute(each)
        assert not list(tmp_path.iterdir())
    finally:
        executor.close()


@pytest.mark.promise("P-call-ends")
async def test_a_cancelled_call_is_told_and_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = FilesExecutor(())
    began, ended = threading.Event(), threading.Event()

    def slow(_arguments: Any, _workspace: Any, cancelled: threading.Event) -> dict[str, Any]:
        began.set()
        cancelled.wait()
        ended.set()
        return {}

    monkeypatch.setattr(executor, "_tools", {"fs.read": FILE_TOOLS["fs.read"]._replace(run=slow)})
    try:
        calling = asyncio.create_task(executor.execute(plan(tmp_path, "fs.read", path="a")))
        await asyncio.to_thread(began.wait)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert ended.is_set(), "the thread was still at work when the call was called ended"
    finally:
        executor.close()


@pytest.mark.promise("P-limits")
@pytest.mark.parametrize(
    ("tool", "key", "maximum", "arguments"),
    [
        ("fs.read", "limit", limits.MAX_READ_BYTES, {"path": "a"}),
        ("fs.list", "max_entries", limits.MAX_LIST_ENTRIES, {}),
        ("fs.search", "max_matches", limits.MAX_MATCHES, {"query": "x"}),
    ],
)
def test_no_file_tool_takes_more_than_its_maximum(tool: str, key: str, maximum: int, arguments: dict[str, Any]) -> None:
    check = builtin_catalog().entry(tool).input_check
    check.require({**arguments, key: maximum})
    with pytest.raises(SchemaMismatch):
        check.require({**arguments, key: maximum + 1})
