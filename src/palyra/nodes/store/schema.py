"""The tables of devices, for both stores.

They are a module of their own, because opening any store loads it, and few processes need the rest.
"""

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS node_state (
        shelf TEXT NOT NULL, id TEXT NOT NULL, record BLOB NOT NULL, PRIMARY KEY (shelf, id)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS node_state_file (
        one INTEGER PRIMARY KEY CHECK (one = 1), revision INTEGER NOT NULL, sha256 TEXT NOT NULL) STRICT""",
)
