"""Counters of a process that lives for one command: nobody comes to read them, so nothing is counted."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palyra.egress.events import EgressEvent
    from palyra.egress.grant import EgressGrant
    from palyra.tools.record import CallRecord


class UnreadMetrics:
    """Takes what ``PrometheusMetrics`` takes."""

    def egress_happened(self, grant: "EgressGrant", event: "EgressEvent") -> None: ...

    def call_ended(self, record: "CallRecord") -> None: ...

    def node_refused(self, code: str) -> None: ...

    def node_request_ended(self, state: str) -> None: ...

    def lease_ended(self, state: str, seconds: float) -> None: ...

    def worker_refused(self, code: str) -> None: ...

    def policy_reloaded(self, outcome: str) -> None: ...

    def token_rejected(self) -> None: ...

    def watch(self, name: str, help_text: str, value: Callable[[], float]) -> None: ...

    def render(self) -> bytes:
        return b""
