"""Calls are counted, logged and traced, and a whole gateway does so."""

import asyncio
import json
import logging
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fakes.call_record import record
from fakes.gateway_harness import open_harness
from palyra.daemon import gateway_wiring
from palyra.pipeline.domain.call import CallRecord
from palyra.pipeline.observe import CallMetrics, CallObserver, CallTracing
from palyra.telemetry.log import CallContext, JsonLines, current_call


class FakeCounters:
    def __init__(self) -> None:
        self.ended: list[CallRecord] = []

    def count(self, record: CallRecord) -> None:
        self.ended.append(record)


class Lines(logging.Handler):
    """What a log has of it, written where it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.written.append(JsonLines().format(record))


async def test_the_end_of_a_call_is_counted_and_logged_without_its_content(caplog: pytest.LogCaptureFixture) -> None:
    counted, lines = FakeCounters(), Lines()
    caplog.set_level(logging.INFO, "palyra.calls")
    logging.getLogger("palyra.calls").addHandler(lines)
    with CallObserver(counted, None).observe(record()) as note_end:
        assert (call := current_call.get()) is not None and call.call_id == "01CALL"
        note_end(record(result={"text": "PRIVATE"}, error={"code": "call.denied", "message": "PRIVATE"}))
    assert current_call.get() is None and not counted.ended
    await asyncio.sleep(0)
    logging.getLogger("palyra.calls").removeHandler(lines)
    assert len(counted.ended) == 1
    line = json.loads(lines.written[0])
    assert (line["message"], line["code"], line["duration_ms"]) == ("echo succeeded", "call.denied", 5)
    assert line["call_id"] == "01CALL" and "PRIVATE" not in json.dumps(line)


@pytest.mark.promise("P-journal-clean")
async def test_a_gateway_logs_its_calls_and_makes_spans_of_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracing = CallTracing(provider.get_tracer("test"), {"echo"})
    monkeypatch.setattr(
        gateway_wiring,
        "build_observer",
        lambda registry, known: CallObserver(CallMetrics(registry, known), tracing),
    )
    caplog.set_level(logging.INFO, "palyra.calls")
    async with open_harness(tmp_path) as harness:
        ended = await harness.call("echo", {"text": "PRIVATE"}, principal="user:operator")
        await asyncio.sleep(0)
        metrics = harness.gateway.metrics.render().decode()
    (span,) = kept.get_finished_spans()
    assert span.attributes is not None and span.attributes["gen_ai.tool.call.id"] == ended.call_id
    assert span.attributes["palyra.status"] == ended.state.value
    assert f'palyra_calls_total{{state="{ended.state.value}",tool="echo"}} 1.0' in metrics
    assert [one.getMessage() for one in caplog.records] == [f"echo {ended.state.value}"]
    assert "PRIVATE" not in span.to_json() + caplog.text


async def test_the_context_holds_in_tasks_and_threads_and_not_outside() -> None:
    async def look() -> CallContext | None:
        return current_call.get()

    outside = asyncio.create_task(look())
    with CallObserver(None, None).observe(record()):
        inside = current_call.get()
        assert inside is not None and inside.call_id == "01CALL"
        assert inside == await asyncio.create_task(look()) == await asyncio.to_thread(current_call.get)
    assert current_call.get() is None and await outside is None
