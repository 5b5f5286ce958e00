"""The registry behind /metrics, and counters that need no package above this one.

Labels come from closed sets, so that no caller can make the daemon's memory grow.
"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from palyra.telemetry import metrics


class PrometheusMetrics:
    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._rejected = Counter(metrics.TOKENS_REJECTED, "Requests with no or a bad token.", registry=self.registry)
        self._reloads = Counter(
            metrics.POLICY_RELOADS, "Policy reloads by outcome.", ["outcome"], registry=self.registry
        )
        self._node_refusals = Counter(
            metrics.NODE_REFUSALS, "Devices refused, by code.", ["code"], registry=self.registry
        )
        self._node_requests = Counter(
            metrics.NODE_REQUESTS, "Requests to devices, by how they ended.", ["state"], registry=self.registry
        )

        self._leases = Counter(
            metrics.LEASES_ENDED, "Calls that workers held, by how that ended.", ["state"], registry=self.registry
        )
        self._lease_seconds = Histogram(
            metrics.LEASE_SECONDS, "Time that a worker held a call.", registry=self.registry
        )
        self._worker_refusals = Counter(
            metrics.WORKER_REFUSALS, "What the fleet's ledger refused, by code.", ["code"], registry=self.registry
        )

    def node_refused(self, code: str) -> None:
        self._node_refusals.labels(code).inc()

    def node_request_ended(self, state: str) -> None:
        self._node_requests.labels(state).inc()

    def lease_ended(self, state: str, seconds: float) -> None:
        self._leases.labels(state).inc()
        self._lease_seconds.observe(seconds)

    def worker_refused(self, code: str) -> None:
        self._worker_refusals.labels(code).inc()

    def policy_reloaded(self, outcome: str) -> None:
        self._reloads.labels(outcome).inc()

    def token_rejected(self) -> None:
        self._rejected.inc()

    def watch(self, name: str, help_text: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is read when /metrics is rendered."""
        Gauge(name, help_text, registry=self.registry).set_function(value)

    def render(self) -> bytes:
        return generate_latest(self.registry)
