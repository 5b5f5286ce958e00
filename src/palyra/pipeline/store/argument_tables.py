"""Tables of sealed arguments and of the keys they are sealed to. Rows are read by call, and dropped oldest first."""

from typing import Any, Final

import msgspec

from palyra.limits import MIB
from palyra.pipeline.domain.call import CallRecord
from palyra.store.event import NewEvent
from palyra.store.port import Reader, Transaction

SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS argument_keys (
        key_id TEXT PRIMARY KEY, public_key BLOB NOT NULL, signature BLOB NOT NULL, wrapping_key TEXT NOT NULL,
        source TEXT NOT NULL, parameters TEXT NOT NULL, sealed_private BLOB NOT NULL, created_ms INTEGER NOT NULL)
        STRICT, WITHOUT ROWID""",
    # Row numbers are the order of arrival.
    """CREATE TABLE IF NOT EXISTS sealed_arguments (
        number INTEGER PRIMARY KEY, call_id TEXT NOT NULL UNIQUE, principal TEXT NOT NULL, digest TEXT NOT NULL,
        key_id TEXT NOT NULL, sender BLOB NOT NULL, sealed BLOB NOT NULL, redacted INTEGER NOT NULL,
        bytes INTEGER NOT NULL, created_ms INTEGER NOT NULL) STRICT""",
    # Holds all that is counted: the rows themselves are never read for it.
    """CREATE INDEX IF NOT EXISTS sealed_arguments_of_principal
        ON sealed_arguments (principal, created_ms, bytes)""",
)
# What a row takes beside its content, with its entries in both indexes.
ROW_BYTES: Final = 384
# One transaction drops so much at most: a call that starts meanwhile waits some milliseconds.
MAX_ROWS_AT_ONCE: Final = 256
# A batch of calls with the largest arguments is cut to this.
MAX_BYTES_AT_ONCE: Final = 4 * MIB
# Principals that one event about dropped arguments names.
MAX_PRINCIPALS_NAMED: Final = 32


class SealedArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of one call, sealed.

    ``sender`` is the public half of the writer's key. ``redacted`` parts were known secrets, replaced before sealing;
    ``stored_sha256`` is then the digest of what was sealed, else that is ``digest``.
    """

    call_id: str
    principal: str
    digest: str
    key_id: str
    sender: bytes
    sealed: bytes
    redacted: int
    bytes: int
    stored_sha256: str

    def for_journal(self) -> dict[str, Any]:
        """Return what the entry with the digest says in addition, if anything."""
        if not self.redacted:
            return {}
        return {"sealed_copy": {"redacted": self.redacted, "sha256": self.stored_sha256}}


class StoredArguments(msgspec.Struct, frozen=True, kw_only=True):
    principal: str
    digest: str
    key_id: str
    sender: bytes
    sealed: bytes
    redacted: int
    created_ms: int


class ArgumentKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key pair, its private half sealed under ``wrapping_key``, which ``source`` keeps."""

    key_id: str
    public_key: bytes
    signature: bytes
    wrapping_key: str
    source: str
    parameters: dict[str, Any]
    sealed_private: bytes
    created_ms: int


class KeptArguments(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept. ``oldest_ms`` is None if nothing is."""

    calls: int = 0
    bytes: int = 0
    oldest_ms: int | None = None


class _SealedCopy(msgspec.Struct, frozen=True):
    sha256: str


class _Entry(msgspec.Struct, frozen=True):
    argument_digest: str = ""
    sealed_copy: _SealedCopy | None = None


_decode_entry = msgspec.json.Decoder(_Entry)


def put_arguments(tx: Transaction, sealed: SealedArguments | None) -> None:
    """Keep the arguments of a call. A call that comes back after its approval has them already."""
    if sealed is not None:
        tx.execute(
            "INSERT OR IGNORE INTO sealed_arguments"
            " (call_id, principal, digest, key_id, sender, sealed, redacted, bytes, created_ms)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(sealed.call_id, sealed.principal, sealed.digest, sealed.key_id, sealed.sender, sealed.sealed),
                *(sealed.redacted, sealed.bytes, tx.now_ms),
            ),
        )


def find_arguments(reader: Reader, call_id: str) -> StoredArguments | None:
    rows = reader.read(
        "SELECT principal, digest, key_id, sender, sealed, redacted, created_ms FROM sealed_arguments"
        " WHERE call_id = ?",
        (call_id,),
    )
    return StoredArguments(**dict(zip(StoredArguments.__struct_fields__, rows[0], strict=True))) if rows else None


def has_arguments(reader: Reader, call_id: str) -> bool:
    return bool(reader.read("SELECT 1 FROM sealed_arguments WHERE call_id = ?", (call_id,)))


def read_recorded_digest(reader: Reader, record: CallRecord) -> tuple[str, str]:
    """Return the digest of a call's arguments in the journal, and that of what was sealed."""
    rows = reader.read(
        "SELECT payload FROM events WHERE call = ? AND call <> '' AND kind IN ('call.requested', 'call.refused')"
        " ORDER BY seq",
        (record.call_id,),
    )
    for (payload,) in rows:
        try:
            entry = _decode_entry.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        if entry.argument_digest:
            return (
                entry.argument_digest,
                entry.argument_digest if entry.sealed_copy is None else entry.sealed_copy.sha256,
            )
    return "", ""


def put_key(tx: Transaction, key: ArgumentKey) -> None:
    tx.execute(
        "INSERT OR REPLACE INTO argument_keys"
        " (key_id, public_key, signature, wrapping_key, source, parameters, sealed_private, created_ms)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(key.key_id, key.public_key, key.signature, key.wrapping_key, key.source),
            *(msgspec.json.encode(key.parameters).decode(), key.sealed_private, key.created_ms),
        ),
    )


def list_keys(reader: Reader) -> list[ArgumentKey]:
    """Return the keys, the newest first."""
    rows = reader.read(
        "SELECT key_id, public_key, signature, wrapping_key, source, parameters, sealed_private, created_ms"
        " FROM argument_keys ORDER BY created_ms DESC, key_id"
    )
    return [
        ArgumentKey(
            key_id=key_id,
            public_key=public_key,
            signature=signature,
            wrapping_key=wrapping_key,
            source=source,
            parameters=msgspec.json.decode(parameters),
            sealed_private=sealed_private,
            created_ms=created_ms,
        )
        for key_id, public_key, signature, wrapping_key, source, parameters, sealed_private, created_ms in rows
    ]


def measure_arguments(reader: Reader) -> KeptArguments:
    ((calls, size, oldest_ms),) = reader.read(
        "SELECT COUNT(*), COALESCE(SUM(bytes), 0), MIN(created_ms) FROM sealed_arguments"
    )
    return KeptArguments(calls=calls, bytes=size + calls * ROW_BYTES, oldest_ms=oldest_ms)


def measure_by_principal(reader: Reader, since_ms: int) -> dict[str, int]:
    """Return the bytes that each principal's calls have added since then."""
    rows = reader.read(
        "SELECT principal, SUM(bytes) + COUNT(*) * ? FROM sealed_arguments WHERE created_ms >= ? GROUP BY principal",
        (ROW_BYTES, since_ms),
    )
    return dict(rows)


def find_largest_before(reader: Reader, before_ms: int) -> str | None:
    """Return the principal whose arguments from before that time take the most space."""
    rows = reader.read(
        "SELECT principal FROM sealed_arguments WHERE created_ms < ? GROUP BY principal"
        " ORDER BY SUM(bytes) + COUNT(*) * ? DESC LIMIT 1",
        (before_ms, ROW_BYTES),
    )
    return rows[0][0] if rows else None


def is_due(reader: Reader, before_ms: int) -> bool:
    """Return whether the oldest arguments are from before that time."""
    rows = reader.read("SELECT created_ms FROM sealed_arguments ORDER BY number LIMIT 1")
    return bool(rows) and rows[0][0] < before_ms


def drop_older(tx: Transaction, before_ms: int, *, actor: str) -> int:
    """Drop arguments from before that time, one batch of the oldest. Return how many."""
    rows = tx.execute(
        "SELECT number, created_ms, bytes FROM sealed_arguments ORDER BY number LIMIT ?", (MAX_ROWS_AT_ONCE,)
    )
    return _drop(tx, [(number, size) for number, at, size in rows if at < before_ms], "age", actor)


def drop_of_principal(tx: Transaction, principal: str, before_ms: int, *, actor: str) -> int:
    """Drop one principal's arguments from before that time, one batch of the oldest. Return how many."""
    rows = tx.execute(
        "SELECT number, bytes FROM sealed_arguments WHERE principal = ? AND created_ms < ? ORDER BY created_ms LIMIT ?",
        (principal, before_ms, MAX_ROWS_AT_ONCE),
    )
    return _drop(tx, [(number, size) for number, size in rows], "size", actor)


def _drop(tx: Transaction, rows: list[tuple[int, int]], reason: str, actor: str) -> int:
    """Drop rows, and put on record how many of whom: a record that grows shorter says so."""
    chosen: list[int] = []
    size = 0
    for number, each in rows:
        if chosen and size + each > MAX_BYTES_AT_ONCE:
            break
        chosen.append(number)
        size += each
    if not chosen:
        return 0
    gone = tx.execute(
        "DELETE FROM sealed_arguments WHERE number IN (SELECT value FROM json_each(?)) RETURNING principal, created_ms",
        (msgspec.json.encode(chosen).decode(),),
    )
    counts: dict[str, int] = {}
    for principal, _ in gone:
        counts[principal] = counts.get(principal, 0) + 1
    named = sorted(counts.items(), key=lambda item: -item[1])[:MAX_PRINCIPALS_NAMED]
    times = [at for _, at in gone]
    payload = {
        "calls": len(gone),
        "bytes": size,
        "reason": reason,
        "from_ms": min(times),
        "to_ms": max(times),
        "principals": [{"principal": name, "calls": count} for name, count in named],
    }
    tx.append(NewEvent(kind="journal.arguments_dropped", actor=actor, payload=payload))
    return len(gone)
