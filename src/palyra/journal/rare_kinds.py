"""Which kinds of events are rare enough to be looked up by an index of their own.

Kinds that every call has are met within a few rows wherever one looks; the index leaves them out, and so costs a call
nothing.
"""

from typing import Final

COMMON_KINDS: Final = ("call.requested", "call.decided", "call.started", "call.finished")
# The condition of the index, word for word as a query has to repeat it. Compared one by one: of a list of more than two
# SQLite makes a table, anew with every statement that inserts an event.
RARE: Final = " AND ".join(f"kind <> '{kind}'" for kind in COMMON_KINDS)
