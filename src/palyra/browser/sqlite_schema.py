"""The table of what was last heard of profiles.

In a module of their own, because every store is opened with them and few use them.
"""

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS browser_profiles_heard (
        one INTEGER PRIMARY KEY CHECK (one = 1), generation INTEGER NOT NULL, mark TEXT NOT NULL) STRICT""",
)
