"""Counters for /metrics. Labels come from closed sets, so that no caller can make the daemon's memory grow."""

from collections.abc import Callable, Container

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from palyra.egress.domain.events import Closed, Connected, CredentialUsed, EgressEvent, Refused
from palyra.egress.domain.grant import EgressGrant
from palyra.errors import PalyraError
from palyra.pipeline.domain.call import CallRecord, CallState
from palyra.telemetry import metrics

# Counters of the browser daemon. Labels come from closed sets: actions, codes, reasons; never a host or a name.

_UNKNOWN = "unknown"


class BrowserMetrics:
    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._opened = Counter(metrics.BROWSER_SESSIONS_OPENED, "Sessions opened.", registry=registry)
        self._closed = Counter(
            metrics.BROWSER_SESSIONS_CLOSED, "Sessions ended, by why.", ["reason"], registry=registry
        )
        self._actions = Counter(
            metrics.BROWSER_ACTIONS, "Actions and observations, by kind.", ["kind", "outcome"], registry=registry
        )
        self._errors = Counter(
            metrics.BROWSER_ACTION_ERRORS, "Those that were refused or failed, by code.", ["code"], registry=registry
        )
        self._connections = Counter(metrics.BROWSER_CONNECTIONS, "Connections that sessions made.", registry=registry)
        self._refusals = Counter(
            metrics.BROWSER_REFUSALS, "Connections that the guard refused, by code.", ["code"], registry=registry
        )
        self._bytes = Counter(
            metrics.BROWSER_BYTES, "Bytes of connections that have ended.", ["direction"], registry=registry
        )

    def opened(self) -> None:
        self._opened.inc()

    def closed(self, reason: str) -> None:
        self._closed.labels(reason).inc()

    def acted(self, kind: str, code: str) -> None:
        self._actions.labels(kind, "failed" if code else "done").inc()
        if code:
            self._errors.labels(code if code in PalyraError.registry else _UNKNOWN).inc()

    def egress(self, event: EgressEvent) -> None:
        if isinstance(event, Connected):
            self._connections.inc()
        elif isinstance(event, Refused):
            self._refusals.labels(event.refusal.code).inc()
        elif isinstance(event, Closed):
            self._bytes.labels("up").inc(event.up)
            self._bytes.labels("down").inc(event.down)

    def watch(self, sessions: Callable[[], int], ready: Callable[[], int]) -> None:
        """Read when somebody asks."""
        Gauge(metrics.BROWSER_SESSIONS, "Sessions that are open.", registry=self._registry).set_function(sessions)
        Gauge(metrics.BROWSER_READY, "Browsers that wait for a session.", registry=self._registry).set_function(ready)

    def render(self) -> bytes:
        return generate_latest(self._registry)


class PrometheusMetrics:
    content_type = CONTENT_TYPE_LATEST

    def __init__(self, known_tools: Container[str]) -> None:
        self._known_tools = known_tools
        self._registry = CollectorRegistry()
        self._calls = Counter(
            metrics.CALLS, "Calls by tool and how they ended.", ["tool", "state"], registry=self._registry
        )
        self._seconds = Histogram(metrics.CALL_SECONDS, "Time from start to end.", ["tool"], registry=self._registry)
        # To find them by their labels takes longer than to count.
        self._calls_of: dict[tuple[str, CallState], Counter] = {}
        self._seconds_of: dict[str, Histogram] = {}
        self._errors = Counter(
            metrics.ERRORS, "Calls that ended in an error, by code.", ["code"], registry=self._registry
        )
        self._rejected = Counter(metrics.TOKENS_REJECTED, "Requests with no or a bad token.", registry=self._registry)
        self._reloads = Counter(
            metrics.POLICY_RELOADS, "Policy reloads by outcome.", ["outcome"], registry=self._registry
        )
        self._egress_connections = Counter(
            metrics.EGRESS_CONNECTIONS, "Connections made for calls, by face.", ["face"], registry=self._registry
        )
        self._egress_refusals = Counter(
            metrics.EGRESS_REFUSALS, "Traffic refused, by code and face.", ["code", "face"], registry=self._registry
        )
        self._egress_violations = Counter(
            metrics.EGRESS_VIOLATIONS, "Refusals that no honest program causes.", registry=self._registry
        )
        self._egress_bytes = Counter(
            metrics.EGRESS_BYTES, "Bytes of connections that have ended.", ["direction"], registry=self._registry
        )
        self._egress_credentials = Counter(
            metrics.EGRESS_CREDENTIAL_USES, "Secrets put into requests.", registry=self._registry
        )

        self._node_refusals = Counter(
            metrics.NODE_REFUSALS, "Devices refused, by code.", ["code"], registry=self._registry
        )
        self._node_requests = Counter(
            metrics.NODE_REQUESTS, "Requests to devices, by how they ended.", ["state"], registry=self._registry
        )

        self._leases = Counter(
            metrics.LEASES_ENDED, "Calls that workers held, by how that ended.", ["state"], registry=self._registry
        )
        self._lease_seconds = Histogram(
            metrics.LEASE_SECONDS, "Time that a worker held a call.", registry=self._registry
        )
        self._worker_refusals = Counter(
            metrics.WORKER_REFUSALS, "What the fleet's ledger refused, by code.", ["code"], registry=self._registry
        )

    def egress_happened(self, grant: EgressGrant, event: EgressEvent) -> None:
        """Shaped as the observer of an egress proxy. Hosts are no labels: a caller chooses them."""
        if isinstance(event, Connected):
            self._egress_connections.labels(event.face).inc()
        elif isinstance(event, Refused):
            self._egress_refusals.labels(event.refusal.code, event.face).inc()
            if event.violation:
                self._egress_violations.inc()
        elif isinstance(event, Closed):
            self._egress_bytes.labels("up").inc(event.up)
            self._egress_bytes.labels("down").inc(event.down)
        elif isinstance(event, CredentialUsed):
            self._egress_credentials.inc()

    def call_ended(self, record: CallRecord) -> None:
        tool = record.tool if record.tool in self._known_tools else "unknown"
        calls = self._calls_of.get((tool, record.state))
        if calls is None:
            calls = self._calls_of[tool, record.state] = self._calls.labels(tool, record.state.value)
        calls.inc()
        if record.error is not None:
            self._errors.labels(record.error["code"]).inc()
        if record.started_ms is not None and record.ended_ms is not None:
            seconds = self._seconds_of.get(tool)
            if seconds is None:
                seconds = self._seconds_of[tool] = self._seconds.labels(tool)
            seconds.observe((record.ended_ms - record.started_ms) / 1000)

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
        """A gauge read when somebody looks."""
        Gauge(name, help_text, registry=self._registry).set_function(value)

    def render(self) -> bytes:
        return generate_latest(self._registry)
