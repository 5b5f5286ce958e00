"""The tables of the fleet, apart from the ledger: every store is opened with them, and few processes use them."""

SCHEMA = (
    # Heartbeats change heard_ms and nothing else; the rest follows from the record.
    """CREATE TABLE IF NOT EXISTS fleet_workers (
        worker_id TEXT PRIMARY KEY, state TEXT NOT NULL, revision INTEGER NOT NULL, live_session INTEGER NOT NULL,
        heard_ms INTEGER NOT NULL, awaited INTEGER NOT NULL, look_ms INTEGER NOT NULL, held INTEGER NOT NULL,
        record BLOB NOT NULL) STRICT, WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS fleet_workers_heard ON fleet_workers (heard_ms) WHERE awaited = 1",
    "CREATE INDEX IF NOT EXISTS fleet_workers_look ON fleet_workers (look_ms)",
    """CREATE TABLE IF NOT EXISTS fleet_leases (
        lease_id TEXT PRIMARY KEY, worker_id TEXT NOT NULL, state TEXT NOT NULL, fence INTEGER NOT NULL UNIQUE,
        due_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL, record BLOB NOT NULL) STRICT, WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS fleet_leases_open ON fleet_leases (worker_id) WHERE ended_ms = 0",
    "CREATE INDEX IF NOT EXISTS fleet_leases_due ON fleet_leases (due_ms) WHERE ended_ms = 0",
    "CREATE INDEX IF NOT EXISTS fleet_leases_ended ON fleet_leases (ended_ms) WHERE ended_ms > 0",
    """CREATE TABLE IF NOT EXISTS fleet_grants (
        grant_id TEXT PRIMARY KEY, used_by TEXT NOT NULL, expires_ms INTEGER NOT NULL, record BLOB NOT NULL
        ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS fleet_grants_expiry ON fleet_grants (expires_ms)",
    # The last fencing number. Pruning never sets it back.
    "CREATE TABLE IF NOT EXISTS fleet_fence (one INTEGER PRIMARY KEY CHECK (one = 1), last INTEGER NOT NULL) STRICT",
    "INSERT OR IGNORE INTO fleet_fence VALUES (1, 0)",
)
