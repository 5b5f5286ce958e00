"""Spans of calls: with an SDK that somebody set up, and at no cost without."""

import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from fakes.call_record import record
from palyra.pipeline.observe import CallTracing, describe_end, find_tracer


def test_a_span_has_the_name_and_the_ids_of_its_call_and_nothing_of_its_content() -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracing = CallTracing(provider.get_tracer("test"), {"echo"})
    with tracing.open_span(record()) as span:
        describe_end(span, record(decision={"outcome": "allow"}, result={"text": "PRIVATE"}))
    with tracing.open_span(record(tool="made-up-by-a-caller")) as span:
        describe_end(span, record(error={"code": "tool.unknown", "message": "PRIVATE", "hint": ""}))
    first, second = kept.get_finished_spans()
    assert first.name == "execute_tool echo" and first.status.status_code is StatusCode.UNSET
    assert first.attributes is not None and first.attributes["gen_ai.tool.call.id"] == "01CALL"
    assert first.attributes["palyra.run_id"] == "01RUN" and first.attributes["palyra.decision"] == "allow"
    assert second.name == "execute_tool unknown" and second.status.status_code is StatusCode.ERROR
    assert second.attributes is not None and second.attributes["error.type"] == "tool.unknown"
    assert "PRIVATE" not in first.to_json() + second.to_json()


@pytest.mark.promise("P-service")
def test_nothing_is_imported_where_no_sdk_is_set_up() -> None:
    code = (
        "import sys, palyra.daemon.gateway_wiring, palyra.pipeline.observe as t\n"
        "assert t.find_tracer({}) is None\n"
        "assert t.find_tracer({'OTEL_PYTHON_TRACER_PROVIDER': 'x', 'OTEL_SDK_DISABLED': 'true'}) is None\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_process_that_has_the_api_gets_a_tracer() -> None:
    assert find_tracer({}) is not None
