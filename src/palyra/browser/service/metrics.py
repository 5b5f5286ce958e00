"""Counters of the browser daemon. Labels come from closed sets: actions, codes, reasons; never a host or a name."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from palyra.egress.domain.events import Closed, Connected, EgressEvent, Refused
from palyra.errors import PalyraError
from palyra.telemetry import metrics

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
        """Add gauges whose values are read when /metrics is rendered."""
        Gauge(metrics.BROWSER_SESSIONS, "Sessions that are open.", registry=self._registry).set_function(sessions)
        Gauge(metrics.BROWSER_READY, "Browsers that wait for a session.", registry=self._registry).set_function(ready)

    def render(self) -> bytes:
        return generate_latest(self._registry)
