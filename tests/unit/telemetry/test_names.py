"""Dashboards and alerts outside this repository are built on these names."""

import re

from palyra.telemetry import metrics


def test_the_names_are_the_published_ones() -> None:
    published = {name: value for name, value in vars(metrics).items() if name.isupper()}
    assert published == {
        "CALLS": "palyra_calls",
        "CALL_SECONDS": "palyra_call_seconds",
        "ERRORS": "palyra_call_errors",
        "POLICY_RELOADS": "palyra_policy_reloads",
        "TOKENS_REJECTED": "palyra_tokens_rejected",
        "CALLS_RUNNING": "palyra_calls_running",
        "APPROVALS_PENDING": "palyra_approvals_pending",
        "JOURNAL_HEAD": "palyra_journal_head_seq",
        "EGRESS_CONNECTIONS": "palyra_egress_connections",
        "EGRESS_REFUSALS": "palyra_egress_refusals",
        "EGRESS_VIOLATIONS": "palyra_egress_violations",
        "EGRESS_BYTES": "palyra_egress_bytes",
        "EGRESS_CREDENTIAL_USES": "palyra_egress_credential_uses",
        "EGRESS_TUNNELS": "palyra_egress_tunnels",
        "NODES_ONLINE": "palyra_nodes_online",
        "NODE_REFUSALS": "palyra_node_refusals",
        "NODE_REQUESTS": "palyra_node_requests",
        "WORKERS": "palyra_workers",
        "LEASES_OPEN": "palyra_leases_open",
        "LEASES_WAITING": "palyra_leases_waiting",
        "LEASES_ENDED": "palyra_leases_ended",
        "LEASE_SECONDS": "palyra_lease_seconds",
        "WORKER_REFUSALS": "palyra_worker_refusals",
        "BROWSER_SESSIONS_OPENED": "palyra_browser_sessions_opened",
        "BROWSER_SESSIONS_CLOSED": "palyra_browser_sessions_closed",
        "BROWSER_SESSIONS": "palyra_browser_sessions",
        "BROWSER_READY": "palyra_browser_ready",
        "BROWSER_ACTIONS": "palyra_browser_actions",
        "BROWSER_ACTION_ERRORS": "palyra_browser_action_errors",
        "BROWSER_CONNECTIONS": "palyra_browser_connections",
        "BROWSER_REFUSALS": "palyra_browser_refusals",
        "BROWSER_BYTES": "palyra_browser_bytes",
    }
    assert all(re.fullmatch(r"palyra_[a-z_]+", value) for value in published.values())
