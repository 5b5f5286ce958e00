"""Every table of the daemon's database. Whoever opens it makes those that are missing, and loads nothing for it."""

from typing import Final

from palyra.browser import sqlite_schema as browser
from palyra.console import sqlite_schema as console
from palyra.identity import sqlite_schema as identity
from palyra.journal import sqlite_search
from palyra.mcp.behind import sqlite_schema as mcp
from palyra.nodes import sqlite_schema as nodes
from palyra.skills import sqlite_schema as skills
from palyra.tools import sqlite_approvals, sqlite_call_search, sqlite_runs
from palyra.vault import sqlite_schema as vault
from palyra.workers import sqlite_schema as workers

SCHEMA: Final = (
    *sqlite_runs.SCHEMA,
    *sqlite_approvals.SCHEMA,
    *sqlite_call_search.SCHEMA,
    *identity.TOKENS,
    *vault.SCHEMA,
    *identity.SCHEMA,
    *workers.SCHEMA,
    *nodes.SCHEMA,
    *skills.SCHEMA,
    *mcp.SCHEMA,
    *browser.SCHEMA,
    *sqlite_search.SCHEMA,
    *console.SCHEMA,
)
