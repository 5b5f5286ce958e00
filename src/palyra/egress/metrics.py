"""Counters of the connections that calls make. Hosts are not labels, because a caller chooses them."""

from prometheus_client import CollectorRegistry, Counter

from palyra.egress.domain.events import Closed, Connected, CredentialUsed, EgressEvent, Refused
from palyra.telemetry import metrics


class EgressMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._connections = Counter(
            metrics.EGRESS_CONNECTIONS, "Connections made for calls, by face.", ["face"], registry=registry
        )
        self._refusals = Counter(
            metrics.EGRESS_REFUSALS, "Traffic refused, by code and face.", ["code", "face"], registry=registry
        )
        self._violations = Counter(
            metrics.EGRESS_VIOLATIONS, "Refusals that no honest program causes.", registry=registry
        )
        self._bytes = Counter(
            metrics.EGRESS_BYTES, "Bytes of connections that have ended.", ["direction"], registry=registry
        )
        self._credentials = Counter(metrics.EGRESS_CREDENTIAL_USES, "Secrets put into requests.", registry=registry)

    def count(self, event: EgressEvent) -> None:
        if isinstance(event, Connected):
            self._connections.labels(event.face).inc()
        elif isinstance(event, Refused):
            self._refusals.labels(event.refusal.code, event.face).inc()
            if event.violation:
                self._violations.inc()
        elif isinstance(event, Closed):
            self._bytes.labels("up").inc(event.up)
            self._bytes.labels("down").inc(event.down)
        elif isinstance(event, CredentialUsed):
            self._credentials.inc()
