"""Spans of calls for OpenTelemetry: through its API alone, and only where somebody set an SDK up.

Nothing of it is imported unless the process was started under an SDK (``opentelemetry-instrument palyrad``) or an
environment variable names a provider; without one a call costs one look at a field.
"""

import os
import sys
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from palyra.tools.record import CallRecord
from palyra.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

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
