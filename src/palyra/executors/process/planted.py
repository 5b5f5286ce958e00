"""The report of protected names that a program planted: the agent reads it in the result, the person in the journal."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from palyra.errors import PalyraError
from palyra.pipeline.domain.call import ExecutionPlan
from palyra.pipeline.domain.spec import ToolTier
from palyra.sandbox.domain.facts import ProtectedChange
from palyra.sandbox.domain.process_run import ProcessOutcome
from palyra.sandbox.limits import MAX_REPORTED_NAMES
from palyra.sandbox.running_process import Running
from palyra.sandbox.verify.protected_changes import describe, render_names
from palyra.sandbox.verify.protected_watch import find_lost
from palyra.store.event import NewEvent
from palyra.store.port import Store
from palyra.workspace.protected_table import how_to_open

log = logging.getLogger("palyra.sandbox")

Report = Callable[[ExecutionPlan, tuple[ProtectedChange, ...], str], Awaitable[None]]


def render_protected(outcome: ProcessOutcome) -> dict[str, Any]:
    """Name the protected names that changed or were in the way, and the setting that lets agents write them."""
    shown = outcome.changes[:MAX_REPORTED_NAMES]
    more = len(outcome.changes) - len(shown)
    patterns = [*(each.pattern for each in shown if not each.harmless), *outcome.in_the_way]
    lines = [*map(describe, shown), *([f"and {more} more"] if more else [])]
    lines += [f"{pattern} is read-only for programs" for pattern in outcome.in_the_way]
    hint = "; ".join(dict.fromkeys(map(how_to_open, patterns)))
    return {"protected": {"changes": lines, "hint": hint or "an operator sees it in the journal"}}


def planted_event(plan: ExecutionPlan, actor: str, changes: tuple[ProtectedChange, ...], folder: str) -> NewEvent:
    names = [
        {
            "name": render_names(each.names),
            "change": each.change.value,
            "why": each.why,
            "moved_to": f"{folder}/{each.moved_to}" if each.moved_to else "",
            "put_back": each.put_back,
            "problem": each.problem,
        }
        for each in changes[:MAX_REPORTED_NAMES]
    ]
    payload = {
        "tool": plan.tool,
        "count": len(changes),
        "moved": sum(bool(each.moved_to) for each in changes),
        "folder": folder,
        "names": names,
    }
    return NewEvent(
        kind="call.planted",
        actor=actor,
        principal=plan.principal,
        run=plan.run_id,
        call=plan.call_id,
        payload=payload,
    )


def report_to(store: Store, actor: str) -> Report:
    """Return a report that records the event. The call's end is recorded whether this works or not."""

    async def report(plan: ExecutionPlan, changes: tuple[ProtectedChange, ...], folder: str) -> None:
        event = planted_event(plan, actor, changes, folder)
        try:
            await store.transact(lambda tx: tx.append(event), essential=True)
        except PalyraError as error:
            log.error("planted names could not be recorded: %s", error)

    return report


async def report_lost(report: Report | None, scratch: str) -> None:
    """Report what programs planted whose daemon died before it looked. It stays: a person may have made it since."""
    for workspace, lost in await asyncio.to_thread(lambda: list(find_lost(scratch))):
        problem = "the daemon died before it looked: look at it yourself"
        changes = tuple(msgspec.structs.replace(each, problem=problem) for each in lost.notable)
        if report is not None and changes:
            log.warning("programs in %s left %d protected names when their daemon died", workspace, len(changes))
            await report(_lost_plan(workspace), changes, "")


def _lost_plan(workspace: str) -> ExecutionPlan:
    """Stand for the call, of which nothing but its workspace is known."""
    return ExecutionPlan(
        call_id="",
        run_id="",
        tool="process.run",
        arguments={},
        workspace=workspace,
        timeout_ms=0,
        max_output_bytes=0,
        tier=ToolTier.C,
    )


async def report_running(report: Report | None, plan: ExecutionPlan, running: Running | None) -> None:
    """Report what a program changed, once it has ended."""
    changes = None if running is None else running.changes
    if report is not None and changes is not None and changes.notable:
        await report(plan, changes.notable, changes.folder)
