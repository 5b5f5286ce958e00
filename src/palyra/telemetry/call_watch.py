"""What watches a call from outside: counters, the log, and spans where somebody wants them."""

import asyncio
import logging
from collections.abc import Container, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from palyra.telemetry.call_context import CallContext, working_for
from palyra.telemetry.tracing import CallSpan, CallTracing, find_tracer
from palyra.tools.record import CallRecord

log = logging.getLogger("palyra.calls")


class Counters(Protocol):
    def call_ended(self, record: CallRecord) -> None: ...


class CallWatch:
    def __init__(self, counters: Counters, tracing: CallTracing | None) -> None:
        self._counters = counters
        self._tracing = tracing

    def watching(self, asked: CallRecord) -> "AbstractContextManager[CallWatch | WatchedSpan]":
        """Around all that is done for a call. What it yields is told how the call ended."""
        context = CallContext(asked.call_id, asked.run_id, asked.principal, asked.tool)
        return working_for(context, self) if self._tracing is None else self._traced(asked, context, self._tracing)

    @contextmanager
    def _traced(self, asked: CallRecord, context: CallContext, tracing: CallTracing) -> Iterator["WatchedSpan"]:
        with working_for(context, None), tracing.span(asked) as span:
            yield WatchedSpan(self, span)

    def call_ended(self, record: CallRecord) -> None:
        """Noted right after the one who called has its answer."""
        asyncio.get_running_loop().call_soon(self._note, record)

    def _note(self, record: CallRecord) -> None:
        self._counters.call_ended(record)
        if log.isEnabledFor(logging.INFO):
            log.info("%s %s", record.tool, record.state.value, extra={"data": _facts(record)})


class WatchedSpan:
    def __init__(self, watch: CallWatch, span: CallSpan) -> None:
        self._watch = watch
        self._span = span

    def call_ended(self, record: CallRecord) -> None:
        self._watch.call_ended(record)
        self._span.ended(record)


def _facts(record: CallRecord) -> dict[str, object]:
    """Neither arguments nor results: the journal has the former, the caller the latter."""
    facts: dict[str, object] = {"status": record.state.value}
    if record.decision is not None:
        facts["decision"] = record.decision.get("outcome")
    if record.error is not None:
        facts["code"] = record.error["code"]
    if record.started_ms is not None and record.ended_ms is not None:
        facts["duration_ms"] = record.ended_ms - record.started_ms
    return facts


def watch_calls(counters: Counters, known_tools: Container[str]) -> CallWatch:
    """With spans where an SDK was set up before this process began to work."""
    tracer = find_tracer()
    return CallWatch(counters, None if tracer is None else CallTracing(tracer, known_tools))
