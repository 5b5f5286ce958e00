"""Kept results in SQL: which calls still have one, how large they are, and how much each principal holds.

The arguments of decided requests for approval are on the same account, each under the id of its approval.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from palyra.canonical import digest_of
from palyra.ids import ulid_at
from palyra.limits import KIB
from palyra.pipeline.domain.approval import Approval
from palyra.pipeline.domain.call import CallRecord, DroppedResult
from palyra.store.event import NewEvent
from palyra.store.port import Reader, Store, Transaction

# A record of an earlier version that is larger than this has a result worth dropping.
_LARGE_RECORD_BYTES: Final = 8 * KIB
# The row that says that the calls of an earlier version were looked at.
_BACKFILLED: Final = "-"
SCHEMA: Final = (
    # The ids of calls begin with their time, so the oldest results of a principal come first.
    """CREATE TABLE IF NOT EXISTS kept_results (
        principal TEXT NOT NULL, call_id TEXT NOT NULL, bytes INTEGER NOT NULL, output_digest TEXT NOT NULL,
        PRIMARY KEY (principal, call_id)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS result_totals (
        principal TEXT PRIMARY KEY, results INTEGER NOT NULL, bytes INTEGER NOT NULL) WITHOUT ROWID""",
    """CREATE TRIGGER IF NOT EXISTS kept_results_added AFTER INSERT ON kept_results BEGIN
        INSERT INTO result_totals VALUES (NEW.principal, 1, NEW.bytes)
        ON CONFLICT (principal) DO UPDATE SET results = results + 1, bytes = bytes + NEW.bytes; END""",
    """CREATE TRIGGER IF NOT EXISTS kept_results_dropped AFTER DELETE ON kept_results BEGIN
        UPDATE result_totals SET results = results - 1, bytes = bytes - OLD.bytes WHERE principal = OLD.principal;
        DELETE FROM result_totals WHERE principal = OLD.principal AND results = 0; END""",
    # CROSS JOIN keeps the order: the calls are read once, and not again at each start.
    f"""INSERT INTO kept_results SELECT principal, call_id, length(record), ''
        FROM (SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM result_totals WHERE principal = '{_BACKFILLED}'))
        CROSS JOIN calls WHERE state <> 'running' AND length(record) > {_LARGE_RECORD_BYTES}""",  # noqa: S608 - constants
    f"INSERT OR IGNORE INTO result_totals VALUES ('{_BACKFILLED}', 0, 0)",  # noqa: S608 - a constant
)
_decode = msgspec.json.Decoder(CallRecord)
_decode_approval = msgspec.json.Decoder(Approval)
_encode = msgspec.json.Encoder().encode


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """Number and size of the results that a principal's calls keep."""

    principal: str
    results: int
    bytes: int


class KeptResult(msgspec.Struct, frozen=True, kw_only=True):
    principal: str
    call_id: str
    bytes: int
    output_digest: str


class StoredData(msgspec.Struct, frozen=True, kw_only=True):
    """The size of the database, what of it is free for new data, and the results, largest holder first."""

    file_bytes: int
    free_bytes: int
    holdings: list[Holding]

    @property
    def results(self) -> int:
        return sum(each.results for each in self.holdings)

    @property
    def result_bytes(self) -> int:
        return sum(each.bytes for each in self.holdings)


def list_holdings(reader: Reader) -> list[Holding]:
    """Return the kept results of each principal, the largest holder first."""
    rows = reader.read("SELECT principal, results, bytes FROM result_totals WHERE results > 0 ORDER BY bytes DESC")
    return [Holding(principal=principal, results=results, bytes=size) for principal, results, size in rows]


def read_stored_data(reader: Reader) -> StoredData:
    """Read the sizes. A database of an earlier version has no results on this account yet."""
    ((page_size,),) = reader.read("PRAGMA page_size")
    ((pages,),) = reader.read("PRAGMA page_count")
    ((free,),) = reader.read("PRAGMA freelist_count")
    known = reader.read("SELECT 1 FROM sqlite_schema WHERE name = 'result_totals'")
    return StoredData(
        file_bytes=pages * page_size, free_bytes=free * page_size, holdings=list_holdings(reader) if known else []
    )


def list_oldest_results(
    reader: Reader, principal: str, *, before_ms: int | None = None, limit: int
) -> list[KeptResult]:
    """Return a principal's oldest results; with ``before_ms`` those of calls that came before."""
    rows = reader.read(
        "SELECT principal, call_id, bytes, output_digest FROM kept_results WHERE principal = ? AND call_id < ?"
        " ORDER BY call_id LIMIT ?",
        (principal, "~" if before_ms is None else ulid_at(before_ms), limit),
    )
    return [KeptResult(principal=row[0], call_id=row[1], bytes=row[2], output_digest=row[3]) for row in rows]


def read_reduced(store: Store, kept: Sequence[KeptResult], now_ms: int) -> list[CallRecord | Approval]:
    """Read the calls and the decided requests, and take results and arguments out. Call it in a thread."""
    marks = ", ".join("?" * len(kept))
    known = {each.call_id: each for each in kept}
    calls = store.read(
        f"SELECT record FROM calls WHERE call_id IN ({marks}) AND state <> 'running'",  # noqa: S608 - question marks
        list(known),
    )
    approvals = store.read(
        f"SELECT record FROM approvals WHERE approval_id IN ({marks}) AND state NOT IN ('pending', 'approved')",  # noqa: S608
        list(known),
    )
    return [
        *(_without_result(record, known[record.call_id], now_ms) for record in map(_decode_row, calls)),
        *(_without_arguments(_decode_approval.decode(row[0]), known) for row in approvals),
    ]


def _decode_row(row: tuple[Any, ...]) -> CallRecord:
    return _decode.decode(row[0])


def _without_arguments(approval: Approval, known: dict[str, KeptResult]) -> Approval:
    return msgspec.structs.replace(approval, arguments={}, touches={}, dropped_bytes=known[approval.id].bytes)


def _without_result(record: CallRecord, kept: KeptResult, now_ms: int) -> CallRecord:
    if record.result is None:
        return record
    digest = kept.output_digest or digest_of(record.result)
    dropped = DroppedResult(bytes=kept.bytes, output_digest=digest, dropped_ms=now_ms)
    return msgspec.structs.replace(record, result=None, result_dropped=dropped)


def drop_results(
    tx: Transaction, kept: Sequence[KeptResult], reduced: Sequence[CallRecord | Approval], *, because: str, actor: str
) -> None:
    """Replace the records of one principal by the reduced ones. The pages that were theirs are used again."""
    for record in reduced:
        if isinstance(record, CallRecord):
            tx.execute("UPDATE calls SET record = ? WHERE call_id = ?", (_encode(record), record.call_id))
        else:
            tx.execute("UPDATE approvals SET record = ? WHERE approval_id = ?", (_encode(record), record.id))
    for each in kept:
        tx.execute("DELETE FROM kept_results WHERE principal = ? AND call_id = ?", (each.principal, each.call_id))
    tx.append(
        NewEvent(
            kind="results.dropped",
            actor=actor,
            principal=kept[0].principal,
            payload={
                "results": len(kept),
                "bytes": sum(each.bytes for each in kept),
                "because": because,
                "first_call": kept[0].call_id,
                "last_call": kept[-1].call_id,
            },
        )
    )
