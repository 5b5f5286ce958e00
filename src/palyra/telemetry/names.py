"""The names that dashboards are built on: changing one breaks somebody's alert."""

CALLS = "palyra_calls"
CALL_SECONDS = "palyra_call_seconds"
ERRORS = "palyra_call_errors"
POLICY_RELOADS = "palyra_policy_reloads"
CALLS_RUNNING = "palyra_calls_running"
APPROVALS_PENDING = "palyra_approvals_pending"
JOURNAL_HEAD = "palyra_journal_head_seq"
