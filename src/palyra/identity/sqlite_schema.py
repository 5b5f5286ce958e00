"""The tables of device identity and of tokens.

In a module of their own, because every store is opened with them and few use them.
"""

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS identity_state (
        one INTEGER PRIMARY KEY CHECK (one = 1), trust_domain TEXT NOT NULL, revision INTEGER NOT NULL) STRICT""",
    """CREATE TABLE IF NOT EXISTS identity_keys (
        key_id TEXT PRIMARY KEY, source TEXT NOT NULL, parameters TEXT NOT NULL) STRICT, WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS identity_authorities (
        authority_id TEXT PRIMARY KEY, state TEXT NOT NULL, certificate BLOB NOT NULL, cross_certificate BLOB NOT NULL,
        key_id TEXT NOT NULL, sealed_key BLOB NOT NULL, created_ms INTEGER NOT NULL, not_before_ms INTEGER NOT NULL,
        not_after_ms INTEGER NOT NULL) STRICT""",
    """CREATE TABLE IF NOT EXISTS identity_devices (
        device_id TEXT PRIMARY KEY, kind TEXT NOT NULL, state TEXT NOT NULL, generation INTEGER NOT NULL,
        used_generation INTEGER NOT NULL, reason TEXT NOT NULL, created_ms INTEGER NOT NULL,
        changed_ms INTEGER NOT NULL, revision INTEGER NOT NULL) STRICT, WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS identity_devices_by_revision ON identity_devices (revision)",
    """CREATE TABLE IF NOT EXISTS identity_certificates (
        fingerprint TEXT PRIMARY KEY, device_id TEXT NOT NULL, generation INTEGER NOT NULL, key_sha256 TEXT NOT NULL,
        authority_id TEXT NOT NULL, certificate BLOB NOT NULL, not_before_ms INTEGER NOT NULL,
        not_after_ms INTEGER NOT NULL, UNIQUE (device_id, generation)) STRICT""",
)
TOKENS = ("CREATE TABLE IF NOT EXISTS api_tokens (token_id TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID",)
