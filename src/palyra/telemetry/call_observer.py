"""Which call the code that runs now works for: what its log lines are named after."""

import asyncio
import logging
import os
import sys
from collections.abc import Container, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from palyra.pipeline.domain.call import CallRecord
from palyra.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

T = TypeVar("T")


class CallContext(NamedTuple):
    call_id: str
    run_id: str
    principal: str
    tool: str


_current: ContextVar[CallContext | None] = ContextVar("palyra_call", default=None)


def current_call() -> CallContext | None:
    return _current.get()


class working_for(Generic[T]):  # noqa: N801 - read as a verb, like other context managers
    """Also for the tasks and threads that are started within, as long as they copy their context. Yields ``what``."""

    def __init__(self, call: CallContext, what: T) -> None:
        self._call = call
        self._what = what

    def __enter__(self) -> T:
        self._token = _current.set(self._call)
        return self._what

    def __exit__(self, *exc_info: object) -> None:
        _current.reset(self._token)


# Spans of calls for OpenTelemetry: through its API alone, and only where somebody set an SDK up.
#
# Nothing of it is imported unless the process was started under an SDK (``opentelemetry-instrument palyrad``) or an
# environment variable names a provider; without one a call costs one look at a field.

PROVIDER_VARIABLE: Final = "OTEL_PYTHON_TRACER_PROVIDER"
DISABLED_VARIABLE: Final = "OTEL_SDK_DISABLED"
API_MODULE: Final = "opentelemetry.trace"
# For a name that no tool has: a caller chooses it, and a span's name comes from a closed set.
UNKNOWN_TOOL: Final = "unknown"


def find_tracer(environ: Mapping[str, str] = os.environ) -> "Tracer | None":
    """None where no SDK is set up."""
    if environ.get(DISABLED_VARIABLE, "").lower() == "true":
        return None
    if API_MODULE not in sys.modules and not environ.get(PROVIDER_VARIABLE):
        return None
    from opentelemetry import trace

    return trace.get_tracer("palyra", VERSION)


class CallTracing:
    """Spans named ``execute_tool NAME``, with the attributes of the conventions for agents. Neither arguments nor
    results are in them."""

    def __init__(self, tracer: "Tracer", known_tools: Container[str]) -> None:
        self._tracer = tracer
        self._known_tools = known_tools

    @contextmanager
    def span(self, asked: CallRecord) -> "Iterator[CallSpan]":
        tool = asked.tool if asked.tool in self._known_tools else UNKNOWN_TOOL
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.call.id": asked.call_id,
            "palyra.run_id": asked.run_id,
            "palyra.principal": asked.principal,
            "palyra.channel": asked.channel,
        }
        with self._tracer.start_as_current_span(
            f"execute_tool {tool}", attributes=attributes, record_exception=False, set_status_on_exception=True
        ) as span:
            yield CallSpan(span)


class CallSpan:
    def __init__(self, span: Any) -> None:
        self._span = span

    def ended(self, record: CallRecord) -> None:
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attribute("palyra.status", record.state.value)
        if record.decision is not None:
            self._span.set_attribute("palyra.decision", str(record.decision.get("outcome", "")))
        if record.error is not None:
            self._span.set_attribute("error.type", record.error["code"])
            self._span.set_status(Status(StatusCode.ERROR, record.error["code"]))


# What watches a call from outside: counters, the log, and spans where somebody wants them.

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
