"""The tables of the vault. In a module of their own, because every store is opened with them and few use them."""

# The kinds of journal entry that tell of a change; the vault's state holds the number of the last of them.
_KINDS = "('vault.created', 'vault.secret_put', 'vault.secret_deleted', 'vault.rotation_started', 'vault.rotated')"
# The condition of the index, word for word as a query has to repeat it. Other events do not get as far as the list, of
# which SQLite makes a table with every statement that inserts one that does.
IS_CHANGE = f"kind >= 'vault.' AND kind < 'vault/' AND kind IN {_KINDS}"

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS vault_state (
        one INTEGER PRIMARY KEY CHECK (one = 1), vault_id TEXT NOT NULL, revision INTEGER NOT NULL,
        seq INTEGER NOT NULL, live INTEGER NOT NULL, active_key TEXT NOT NULL, previous_key TEXT NOT NULL,
        buckets BLOB NOT NULL, tag BLOB NOT NULL) STRICT""",
    """CREATE TABLE IF NOT EXISTS vault_keys (
        key_id TEXT PRIMARY KEY, source TEXT NOT NULL, parameters TEXT NOT NULL, state TEXT NOT NULL,
        index_key BLOB NOT NULL, created_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS vault_secrets (
        scope TEXT NOT NULL, key TEXT NOT NULL, bucket INTEGER NOT NULL, current INTEGER NOT NULL,
        oldest INTEGER NOT NULL, live INTEGER NOT NULL, created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL,
        updated_by TEXT NOT NULL, tag BLOB NOT NULL, PRIMARY KEY (scope, key)) STRICT, WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS vault_secrets_by_bucket ON vault_secrets (bucket, scope, key, tag)",
    """CREATE TABLE IF NOT EXISTS vault_versions (
        scope TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, key_id TEXT NOT NULL, wrapped BLOB NOT NULL,
        sealed BLOB NOT NULL, PRIMARY KEY (scope, key, version)) STRICT""",
    "CREATE INDEX IF NOT EXISTS vault_versions_by_key ON vault_versions (key_id, scope, key, version)",
    # The same by the list alone, as it was made before.
    "DROP INDEX IF EXISTS vault_changes",
    f"CREATE INDEX IF NOT EXISTS changes_of_vault ON events (seq) WHERE {IS_CHANGE}",
)
