"""Counters for /metrics. Labels come from closed sets, so that no caller can make the daemon's memory grow."""

from collections.abc import Callable, Container

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from palyra.telemetry import names
from palyra.tools.record import CallRecord


class PrometheusMetrics:
    content_type = CONTENT_TYPE_LATEST

    def __init__(self, known_tools: Container[str]) -> None:
        self._known_tools = known_tools
        self._registry = CollectorRegistry()
        self._calls = Counter(
            names.CALLS, "Calls by tool and how they ended.", ["tool", "state"], registry=self._registry
        )
        self._seconds = Histogram(names.CALL_SECONDS, "Time from start to end.", ["tool"], registry=self._registry)
        self._errors = Counter(
            names.ERRORS, "Calls that ended in an error, by code.", ["code"], registry=self._registry
        )
        self._rejected = Counter(names.TOKENS_REJECTED, "Requests with no or a bad token.", registry=self._registry)
        self._reloads = Counter(
            names.POLICY_RELOADS, "Policy reloads by outcome.", ["outcome"], registry=self._registry
        )

    def call_ended(self, record: CallRecord) -> None:
        tool = record.tool if record.tool in self._known_tools else "unknown"
        self._calls.labels(tool, record.state.value).inc()
        if record.error is not None:
            self._errors.labels(record.error["code"]).inc()
        if record.started_ms is not None and record.ended_ms is not None:
            self._seconds.labels(tool).observe((record.ended_ms - record.started_ms) / 1000)

    def policy_reloaded(self, outcome: str) -> None:
        self._reloads.labels(outcome).inc()

    def token_rejected(self) -> None:
        self._rejected.inc()

    def watch(self, name: str, help_text: str, value: Callable[[], float]) -> None:
        """A gauge read when somebody looks."""
        Gauge(name, help_text, registry=self._registry).set_function(value)

    def render(self) -> bytes:
        return generate_latest(self._registry)
