"""The tables of the console. In a module of their own, because every store is opened with them and few use them."""

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS console_sessions (
        secret_sha256 TEXT PRIMARY KEY, used_ms INTEGER NOT NULL, record BLOB NOT NULL) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS console_sessions_used ON console_sessions (used_ms)",
    """CREATE TABLE IF NOT EXISTS console_requests (
        principal TEXT NOT NULL, key TEXT NOT NULL, request_sha256 TEXT NOT NULL, asked_ms INTEGER NOT NULL,
        status INTEGER NOT NULL, answer BLOB NOT NULL, PRIMARY KEY (principal, key)) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS console_requests_asked ON console_requests (asked_ms)",
)
