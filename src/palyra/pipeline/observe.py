"""Observes calls: counts them, logs their ends, and makes OpenTelemetry spans under an SDK.

Neither arguments nor results appear here: the journal has the former, the caller the latter.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from palyra.pipeline.domain.call import CallRecord
from palyra.telemetry import metrics
from palyra.telemetry.log import CallContext, current_call
from palyra.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer
    from prometheus_client import CollectorRegistry

log = logging.getLogger("palyra.calls")

PROVIDER_VARIABLE: Final = "OTEL_PYTHON_TRACER_PROVIDER"
DISABLED_VARIABLE: Final = "OTEL_SDK_DISABLED"
API_MODULE: Final = "opentelemetry.trace"
# Callers choose the names of tools that do not exist. Labels and names of spans come from a closed set.
UNKNOWN_TOOL: Final = "unknown"


class CallCounters(Protocol):
    def count(self, record: CallRecord) -> None: ...


class CallMetrics:
    def __init__(self, registry: "CollectorRegistry", known_tools: Container[str]) -> None:
        from prometheus_client import Counter, Histogram

        self._known_tools = known_tools
        self._calls = Counter(metrics.CALLS, "Calls by tool and how they ended.", ["tool", "state"], registry=registry)
        self._seconds = Histogram(metrics.CALL_SECONDS, "Time from start to end.", ["tool"], registry=registry)
        self._errors = Counter(metrics.ERRORS, "Calls that ended in an error, by code.", ["code"], registry=registry)

    def count(self, record: CallRecord) -> None:
        tool = record.tool if record.tool in self._known_tools else UNKNOWN_TOOL
        self._calls.labels(tool, record.state.value).inc()
        if record.error is not None:
            self._errors.labels(record.error["code"]).inc()
        if record.started_ms is not None and record.ended_ms is not None:
            self._seconds.labels(tool).observe((record.ended_ms - record.started_ms) / 1000)


def find_tracer(environ: Mapping[str, str] = os.environ) -> "Tracer | None":
    """Return a tracer if an SDK is set up, without importing OpenTelemetry otherwise."""
    if environ.get(DISABLED_VARIABLE, "").lower() == "true":
        return None
    if API_MODULE not in sys.modules and not environ.get(PROVIDER_VARIABLE):
        return None
    from opentelemetry import trace

    return trace.get_tracer("palyra", VERSION)


class CallTracing:
    """Makes spans named ``execute_tool NAME``, with the attributes of the conventions for agents."""

    def __init__(self, tracer: "Tracer", known_tools: Container[str]) -> None:
        self._tracer = tracer
        self._known_tools = known_tools

    @contextmanager
    def open_span(self, record: CallRecord) -> "Iterator[Span]":
        tool = record.tool if record.tool in self._known_tools else UNKNOWN_TOOL
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.call.id": record.call_id,
            "palyra.run_id": record.run_id,
            "palyra.principal": record.principal,
            "palyra.channel": record.channel,
        }
        with self._tracer.start_as_current_span(
            f"execute_tool {tool}", attributes=attributes, record_exception=False, set_status_on_exception=True
        ) as span:
            yield span


def describe_end(span: "Span", record: CallRecord) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("palyra.status", record.state.value)
    if record.decision is not None:
        span.set_attribute("palyra.decision", str(record.decision.get("outcome", "")))
    if record.error is not None:
        span.set_attribute("error.type", record.error["code"])
        span.set_status(Status(StatusCode.ERROR, record.error["code"]))


class CallObserver:
    def __init__(self, counters: CallCounters | None, tracing: CallTracing | None) -> None:
        self._counters = counters
        self._tracing = tracing

    @contextmanager
    def observe(self, record: CallRecord) -> Iterator[Callable[[CallRecord], None]]:
        """Name the call in all log lines of the block, its tasks and its threads. Yield the function that ends it."""
        token = current_call.set(CallContext(record.call_id, record.run_id, record.principal, record.tool))
        try:
            with nullcontext() if self._tracing is None else self._tracing.open_span(record) as span:
                yield partial(self._end, span)
        finally:
            current_call.reset(token)

    def _end(self, span: "Span | None", record: CallRecord) -> None:
        if span is not None:
            describe_end(span, record)
        # The caller has its answer before the call is counted and logged.
        asyncio.get_running_loop().call_soon(self._note, record)

    def _note(self, record: CallRecord) -> None:
        if self._counters is not None:
            self._counters.count(record)
        if log.isEnabledFor(logging.INFO):
            log.info("%s %s", record.tool, record.state.value, extra={"data": _facts(record)})


def _facts(record: CallRecord) -> dict[str, Any]:
    facts: dict[str, Any] = {"status": record.state.value}
    if record.decision is not None:
        facts["decision"] = record.decision.get("outcome")
    if record.error is not None:
        facts["code"] = record.error["code"]
    if record.started_ms is not None and record.ended_ms is not None:
        facts["duration_ms"] = record.ended_ms - record.started_ms
    return facts


def build_observer(registry: "CollectorRegistry | None", known_tools: Container[str]) -> CallObserver:
    """Build an observer with spans if an SDK was set up before this process began to work."""
    tracer = find_tracer()
    return CallObserver(
        None if registry is None else CallMetrics(registry, known_tools),
        None if tracer is None else CallTracing(tracer, known_tools),
    )
