"""The table of what was reviewed of servers behind Palyra.

In a module of their own, because every store is opened with them and few use them.
"""

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS mcp_pins (
        server TEXT NOT NULL, tool TEXT NOT NULL, record BLOB NOT NULL, PRIMARY KEY (server, tool)) WITHOUT ROWID""",
)
