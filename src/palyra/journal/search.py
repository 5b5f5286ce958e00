"""Search of the journal for people: newest first, a page at a time, over a bounded stretch at once.

Rare kinds have an index. It omits the kinds that every call has, which occur within a few rows anywhere, and so costs a
call nothing.
"""

from typing import Any, Final

import msgspec

from palyra.store.event import EVENT_COLUMNS, Event
from palyra.store.port import Reader

COMMON_KINDS: Final = ("call.requested", "call.decided", "call.started", "call.finished")
# The condition of the index, which a query must repeat exactly. For a list of more than two values SQLite would make a
# table again for every statement that inserts an event.
RARE: Final = " AND ".join(f"kind <> '{kind}'" for kind in COMMON_KINDS)

SCHEMA = (
    # The index with a list, as earlier versions made it.
    "DROP INDEX IF EXISTS events_rare",
    f"CREATE INDEX IF NOT EXISTS events_of_rare_kinds ON events (kind, seq) WHERE {RARE}",
)


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """All given fields must match.

    ``kind`` is exact, or ends with a dot for all kinds of a concept. ``text`` occurs in the payload, in any case of
    ASCII letters.
    """

    kind: str = ""
    actor: str = ""
    principal: str = ""
    run: str = ""
    call: str = ""
    text: str = ""
    before: int | None = None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """``next`` is where to continue: events below it were not searched. None at the beginning of the journal."""

    events: list[Event]
    next: int | None


def search_events(reader: Reader, query: EventQuery, *, limit: int, look_at: int) -> Found:
    """Return at most ``limit`` events. Without an index, search at most ``look_at`` events."""
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
        # From `approval.` to the character after the dot, which is a slash.
        clauses.append(f"kind >= ? AND kind < ?{'' if query.kind == 'call.' else f' AND {RARE}'}")
        params += [query.kind, query.kind[:-1] + "/"]
    elif query.kind:
        clauses.append(f"kind = ?{'' if query.kind in COMMON_KINDS else f' AND {RARE}'}")
        params.append(query.kind)
    if query.text:
        clauses.append("instr(lower(CAST(payload AS TEXT)), lower(?)) > 0")
        params.append(query.text)
    return "".join(f" AND {clause}" for clause in clauses), params
