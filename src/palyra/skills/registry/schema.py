"""The tables of skills and of their publishers.

In a module of their own, because every store is opened with them and few use them.
"""

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS skill_versions (
        skill_id TEXT NOT NULL, digest TEXT NOT NULL, version TEXT NOT NULL, state TEXT NOT NULL, key_id TEXT NOT NULL,
        decided_seq INTEGER NOT NULL, record BLOB NOT NULL, PRIMARY KEY (skill_id, digest)) STRICT, WITHOUT ROWID""",
    # The database itself keeps two daemons from having two versions of a skill in use.
    "CREATE UNIQUE INDEX IF NOT EXISTS skill_versions_active ON skill_versions (skill_id) WHERE state = 'approved'",
    """CREATE UNIQUE INDEX IF NOT EXISTS skill_versions_kept ON skill_versions (skill_id, version)
        WHERE state IN ('quarantined', 'approved', 'disabled', 'superseded')""",
    "CREATE INDEX IF NOT EXISTS skill_versions_by_key ON skill_versions (key_id)",
    """CREATE TABLE IF NOT EXISTS skill_owners (
        skill_id TEXT PRIMARY KEY, publisher TEXT NOT NULL, key_id TEXT NOT NULL, newest_approved TEXT NOT NULL
        ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS skill_configurations (
        skill_id TEXT NOT NULL, version TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (skill_id, version)
        ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS skill_history (
        seq INTEGER PRIMARY KEY, skill_id TEXT NOT NULL, version TEXT NOT NULL, digest TEXT NOT NULL,
        kind TEXT NOT NULL, time_ms INTEGER NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL) STRICT""",
    "CREATE INDEX IF NOT EXISTS skill_history_by_skill ON skill_history (skill_id, seq)",
    """CREATE TABLE IF NOT EXISTS skill_keys (
        publisher TEXT NOT NULL, key_id TEXT NOT NULL, public_key BLOB NOT NULL, source TEXT NOT NULL,
        state TEXT NOT NULL, replaces TEXT NOT NULL, added_ms INTEGER NOT NULL, added_by TEXT NOT NULL,
        ended_ms INTEGER, reason TEXT NOT NULL, PRIMARY KEY (publisher, key_id)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS skill_revoked_keys (
        key_id TEXT PRIMARY KEY, revoked_ms INTEGER NOT NULL, revoked_by TEXT NOT NULL, reason TEXT NOT NULL
        ) STRICT, WITHOUT ROWID""",
)
