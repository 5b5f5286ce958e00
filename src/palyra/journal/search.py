"""Which kinds of events are rare enough to be looked up by an index of their own.

Kinds that every call has are met within a few rows wherever one looks; the index leaves them out, and so costs a call
nothing.
"""

from typing import Any, Final

import msgspec

from palyra.store.event import EVENT_COLUMNS, Event
from palyra.store.port import Reader

COMMON_KINDS: Final = ("call.requested", "call.decided", "call.started", "call.finished")
# The condition of the index, word for word as a query has to repeat it. Compared one by one: of a list of more than two
# SQLite makes a table, anew with every statement that inserts an event.
RARE: Final = " AND ".join(f"kind <> '{kind}'" for kind in COMMON_KINDS)


# Searching the journal for people: newest first, a page at a time, never more than a bounded stretch of it at once.
#
# Kinds that every call has are met within a few rows wherever one looks; all others have an index of their own, which
# costs a call nothing.

SCHEMA = (
    # The same as a list, as it was made before.
    "DROP INDEX IF EXISTS events_rare",
    f"CREATE INDEX IF NOT EXISTS events_of_rare_kinds ON events (kind, seq) WHERE {RARE}",
)


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Everything given has to fit. ``kind`` is exact, or ends with a dot for all kinds of a concept; ``text`` occurs
    somewhere in the payload, in any case of ASCII letters."""

    kind: str = ""
    actor: str = ""
    principal: str = ""
    run: str = ""
    call: str = ""
    text: str = ""
    before: int | None = None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """``next`` is where to go on: below it nothing was looked at. None at the beginning of the journal."""

    events: list[Event]
    next: int | None


def search_events(reader: Reader, query: EventQuery, *, limit: int, look_at: int) -> Found:
    """At most ``limit`` events, out of at most ``look_at`` looked at where no index leads to them."""
    indexed = bool(query.run or query.call) or (bool(query.kind) and query.kind not in COMMON_KINDS)
    first = query.before if query.before is not None else _head(reader) + 1
    lowest = 0 if indexed else max(0, first - 1 - look_at)
    where, params = _conditions(query)
    rows = reader.read(
        f"SELECT {EVENT_COLUMNS} FROM events WHERE seq < ? AND seq > ?{where} ORDER BY seq DESC LIMIT ?",  # noqa: S608
        (first, lowest, *params, limit),
    )
    events = [Event(**dict(zip(Event.__struct_fields__, row, strict=True))) for row in rows]
    if len(events) == limit:
        return Found(events=events, next=events[-1].seq)
    return Found(events=events, next=lowest + 1 if lowest > 0 else None)


def _head(reader: Reader) -> int:
    rows = reader.read("SELECT seq FROM events ORDER BY seq DESC LIMIT 1")
    return int(rows[0][0]) if rows else 0


def _conditions(query: EventQuery) -> tuple[str, list[Any]]:
    clauses: list[str] = []
    params: list[Any] = []
    for column in ("run", "call"):
        if value := getattr(query, column):
            clauses.append(f"{column} = ? AND {column} <> ''")
            params.append(value)
    for column in ("actor", "principal"):
        if value := getattr(query, column):
            clauses.append(f"{column} = ?")
            params.append(value)
    if query.kind.endswith("."):
        # From `approval.` up to what follows the dot in the alphabet.
        clauses.append(f"kind >= ? AND kind < ?{'' if query.kind == 'call.' else f' AND {RARE}'}")
        params += [query.kind, query.kind[:-1] + "/"]
    elif query.kind:
        clauses.append(f"kind = ?{'' if query.kind in COMMON_KINDS else f' AND {RARE}'}")
        params.append(query.kind)
    if query.text:
        clauses.append("instr(lower(CAST(payload AS TEXT)), lower(?)) > 0")
        params.append(query.text)
    return "".join(f" AND {clause}" for clause in clauses), params
