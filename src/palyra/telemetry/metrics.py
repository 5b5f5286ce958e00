"""The names of the metrics. Dashboards and alerts depend on them."""

from collections.abc import Callable

CALLS = "palyra_calls"
CALL_SECONDS = "palyra_call_seconds"
ERRORS = "palyra_call_errors"
POLICY_RELOADS = "palyra_policy_reloads"
TOKENS_REJECTED = "palyra_tokens_rejected"
CALLS_RUNNING = "palyra_calls_running"
APPROVALS_PENDING = "palyra_approvals_pending"
JOURNAL_HEAD = "palyra_journal_head_seq"
EGRESS_CONNECTIONS = "palyra_egress_connections"
EGRESS_REFUSALS = "palyra_egress_refusals"
EGRESS_VIOLATIONS = "palyra_egress_violations"
EGRESS_BYTES = "palyra_egress_bytes"
EGRESS_CREDENTIAL_USES = "palyra_egress_credential_uses"
EGRESS_TUNNELS = "palyra_egress_tunnels"
NODES_ONLINE = "palyra_nodes_online"
NODE_REFUSALS = "palyra_node_refusals"
NODE_REQUESTS = "palyra_node_requests"
WORKERS = "palyra_workers"
LEASES_OPEN = "palyra_leases_open"
LEASES_WAITING = "palyra_leases_waiting"
LEASES_ENDED = "palyra_leases_ended"
LEASE_SECONDS = "palyra_lease_seconds"
WORKER_REFUSALS = "palyra_worker_refusals"
BROWSER_SESSIONS_OPENED = "palyra_browser_sessions_opened"
BROWSER_SESSIONS_CLOSED = "palyra_browser_sessions_closed"
BROWSER_SESSIONS = "palyra_browser_sessions"
BROWSER_READY = "palyra_browser_ready"
BROWSER_ACTIONS = "palyra_browser_actions"
BROWSER_ACTION_ERRORS = "palyra_browser_action_errors"
BROWSER_CONNECTIONS = "palyra_browser_connections"
BROWSER_REFUSALS = "palyra_browser_refusals"
BROWSER_BYTES = "palyra_browser_bytes"


class UnreadMetrics:
    """Takes the calls of ``PrometheusMetrics`` and counts nothing: the process ends with its command."""

    registry = None

    def node_refused(self, code: str) -> None: ...

    def node_request_ended(self, state: str) -> None: ...

    def lease_ended(self, state: str, seconds: float) -> None: ...

    def worker_refused(self, code: str) -> None: ...

    def policy_reloaded(self, outcome: str) -> None: ...

    def token_rejected(self) -> None: ...

    def watch(self, name: str, help_text: str, value: Callable[[], float]) -> None: ...

    def render(self) -> bytes:
        return b""
