"""Verifier of a journal against itself, its checkpoints, and checkpoints kept elsewhere.

It makes one pass over the events in stored order, in memory bounded by the events between two checkpoints. The first
damage raises ``JournalTampered`` with the sequence number and the kind.
"""

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from enum import StrEnum

import msgspec

from palyra.clock import MS_PER_SECOND
from palyra.errors import NotProven, Tampered
from palyra.journal.chain import GENESIS_HASH, event_hash
from palyra.journal.checkpoint import (
    GENESIS_CHECKPOINT,
    Checkpoint,
    ForgedCheckpoint,
    InvalidCheckpoint,
    merkle_root,
    parse_checkpoint,
    verify_signature,
)
from palyra.limits import CHECKPOINT_EVERY_EVENTS, CHECKPOINT_EVERY_SECONDS
from palyra.signing.dsse import Verifier
from palyra.store.event import EVENT_COLUMNS, Row
from palyra.store.port import DatabaseDamaged, JournalSource, NoSuchEvent, Reader, Snapshot

# How far from its place a moved event is searched for, to name the damage once some was found.
_SEARCH_RADIUS = 10_000
# A checkpoint that is this late is missing: it is made after a minute, or when a process stops.
OVERDUE_MS = int(10 * CHECKPOINT_EVERY_SECONDS * MS_PER_SECOND)
_UNHASHABLE = (TypeError, struct.error, OverflowError, AttributeError)


class Damage(StrEnum):
    EDITED = "edited"  # a field no longer matches the event's own hash
    MISSING = "missing"  # a sequence number is skipped
    TRUNCATED = "truncated"  # the events end before a known checkpoint
    REORDERED = "reordered"  # an event stands in another's place
    FORKED = "forked"  # two events follow the same one, or share a number
    REPLACED = "replaced"  # an event is sound by itself, but its successor names another
    REWRITTEN = "rewritten"  # sound hashes that a signed checkpoint contradicts
    TORN = "torn"  # the last event, not yet under a checkpoint, is incomplete
    UNREADABLE = "unreadable"  # the file itself is damaged
    CHECKPOINT = "checkpoint"  # a checkpoint is missing, out of order or forged


class JournalTampered(Tampered):
    code = "journal.tampered"
    hint = "keep the files as they are, and compare with an export or a checkpoint kept elsewhere"

    def __init__(self, message: str, *, seq: int, kind: Damage) -> None:
        super().__init__(message, seq=seq, kind=kind.value)
        self.seq = seq
        self.kind = kind


class EventsNotProven(NotProven):
    code = "journal.not_proven"
    hint = "a checkpoint follows within a minute of the first event without one: verify or export again then"


class AnchorUnused(NotProven):
    code = "journal.anchor_unused"
    hint = "give a checkpoint whose events are in the file, or an export that begins before it"


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Beginning of a stretch of events; by default the whole journal."""

    seq: int = 1
    prev_hash: bytes = GENESIS_HASH
    # The newest checkpoint before ``seq``, when there is one.
    basis: Checkpoint | None = None


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """Report on a sound journal. ``unsealed`` events at the end are chained, but under no checkpoint yet.

    A writer of the file can make up such events. The first of them is of ``unsealed_since_ms``.
    """

    events: int
    first_seq: int
    last_seq: int
    head_hash: str
    checkpoints: int
    sealed_through: int
    unsealed: int
    unsealed_since_ms: int | None = None
    anchors: int
    key_ids: tuple[str, ...]

    def require_proven(self, *, at_ms: int | None = None) -> None:
        """Raise if events are under no checkpoint, or, given the time, if their checkpoint is overdue."""
        overdue = at_ms is None or at_ms - (self.unsealed_since_ms or 0) > OVERDUE_MS
        if self.unsealed > CHECKPOINT_EVERY_EVENTS or (self.unsealed and overdue):
            first = self.last_seq - self.unsealed + 1
            raise EventsNotProven(
                f"events {first} to {self.last_seq} are chained, and no signed checkpoint covers them",
                first_seq=first,
                last_seq=self.last_seq,
            )


class JournalVerifier:
    """``anchors`` are checkpoints kept elsewhere: the events must still lead to each of them."""

    def __init__(
        self, verifiers: Sequence[Verifier], *, anchors: Iterable[Checkpoint] = (), start: Start | None = None
    ) -> None:
        self._verifiers = tuple(verifiers)
        self._anchors = tuple(sorted(anchors, key=lambda anchor: anchor.last_seq))
        self._start = start or Start()
        self._key_ids: dict[str, None] = {}
        self._used_anchors: set[int] = set()
        self._report: VerifyReport | None = None

    @property
    def report(self) -> VerifyReport:
        if self._report is None:
            raise RuntimeError("the report exists once walk() has reached the end")
        return self._report

    def walk(self, rows: Iterable[Row], checkpoints: Iterable[Checkpoint]) -> Iterator[Row | Checkpoint]:
        """Yield every row, and every checkpoint after the last row it seals, once it was found sound."""
        for anchor in self._anchors:
            self._check_signature(anchor)
        # Only keys that signed a checkpoint of these events are reported.
        self._key_ids.clear()
        unsealed_since_ms: int | None = None
        expected, head = self._start.seq, self._start.prev_hash
        sealed, previous = 0, self._start.basis
        if previous is not None:
            self._check_signature(previous)
            self._compare_with_anchors(previous)
            if previous.last_seq == expected - 1 and previous.head_hash != head:
                raise JournalTampered("the events do not continue their checkpoint", seq=expected, kind=Damage.FORKED)
        # The hash before the last checkpoint's end, then those since; complete unless the walk starts in between.
        segment = [head]
        complete = expected == (previous.last_seq + 1 if previous else 1)
        remaining_rows, remaining_checkpoints = iter(rows), iter(checkpoints)
        pending = self._next_checkpoint(remaining_checkpoints, previous)
        seal_at = pending.last_seq if pending else -1
        hash_of, add = event_hash, segment.append
        for row in remaining_rows:
            seq, id_, time_ms, kind, actor, principal, run, call, payload, prev_hash, hash_ = row
            try:
                actual = hash_of(seq, id_, time_ms, kind, actor, principal, run, call, payload, prev_hash)
            except _UNHASHABLE:
                actual = b""
            if seq != expected or prev_hash != head or actual != hash_:
                raise self._damage(row, expected, segment, remaining_rows, sealed=pending is not None)
            head = hash_
            expected += 1
            if len(segment) == 1:
                unsealed_since_ms = time_ms
            add(hash_)
            yield row
            if seq == seal_at and pending is not None:
                self._check_seal(pending, segment, complete)
                yield pending
                segment, complete, sealed, previous = [head], True, sealed + 1, pending
                add = segment.append
                pending = self._next_checkpoint(remaining_checkpoints, previous)
                seal_at = pending.last_seq if pending else -1
        self._check_end(expected, pending, previous)
        self._report = VerifyReport(
            events=expected - self._start.seq,
            first_seq=self._start.seq,
            last_seq=expected - 1,
            head_hash=head.hex(),
            checkpoints=sealed,
            sealed_through=previous.last_seq if previous else 0,
            unsealed=len(segment) - 1,
            unsealed_since_ms=unsealed_since_ms if len(segment) > 1 else None,
            anchors=len(self._used_anchors),
            key_ids=tuple(self._key_ids),
        )

    def verify(self, rows: Iterable[Row], checkpoints: Iterable[Checkpoint]) -> VerifyReport:
        deque(self.walk(rows, checkpoints), maxlen=0)
        return self.report

    def _check_signature(self, checkpoint: Checkpoint) -> None:
        try:
            verify_signature(checkpoint, self._verifiers)
        except ForgedCheckpoint as error:
            raise JournalTampered(error.message, seq=checkpoint.last_seq, kind=Damage.CHECKPOINT) from error
        self._key_ids[checkpoint.key_id] = None

    def _next_checkpoint(self, remaining: Iterator[Checkpoint], previous: Checkpoint | None) -> Checkpoint | None:
        checkpoint = next(remaining, None)
        if checkpoint is None:
            return None
        self._check_signature(checkpoint)
        if previous is None and self._start.seq > 1:
            # A stretch without a basis: the first checkpoint in it cannot be tied to one before it.
            in_order = checkpoint.first_seq <= self._start.seq <= checkpoint.last_seq
        else:
            number, first_seq, digest = (
                (previous.number + 1, previous.last_seq + 1, previous.digest())
                if previous
                else (1, 1, GENESIS_CHECKPOINT)
            )
            in_order = (checkpoint.number, checkpoint.first_seq, checkpoint.previous) == (number, first_seq, digest)
        if not in_order:
            raise JournalTampered(
                f"checkpoint {checkpoint.number} does not follow the one before it",
                seq=previous.last_seq + 1 if previous else self._start.seq,
                kind=Damage.CHECKPOINT,
            )
        self._compare_with_anchors(checkpoint)
        return checkpoint

    def _compare_with_anchors(self, checkpoint: Checkpoint) -> None:
        for anchor in self._anchors:
            if anchor.number == checkpoint.number:
                self._used_anchors.add(anchor.number)
                if anchor.signed_bytes() != checkpoint.signed_bytes():
                    raise JournalTampered(
                        f"checkpoint {checkpoint.number} is not the one that was kept: there are two histories",
                        seq=min(anchor.first_seq, checkpoint.first_seq),
                        kind=Damage.FORKED,
                    )

    def _check_seal(self, checkpoint: Checkpoint, segment: list[bytes], complete: bool) -> None:
        if checkpoint.head_hash != segment[-1] or (complete and merkle_root(segment[1:]) != checkpoint.root):
            raise JournalTampered(
                f"events {checkpoint.first_seq} to {checkpoint.last_seq} are not those that checkpoint "
                f"{checkpoint.number} sealed",
                seq=checkpoint.first_seq,
                kind=Damage.REWRITTEN,
            )

    def _check_end(self, expected: int, pending: Checkpoint | None, newest: Checkpoint | None) -> None:
        if pending is not None:
            raise JournalTampered(
                f"the events end at {expected - 1}, and checkpoint {pending.number} sealed up to {pending.last_seq}",
                seq=expected,
                kind=Damage.TRUNCATED,
            )
        for anchor in self._anchors:
            if anchor.last_seq >= expected:
                raise JournalTampered(
                    f"the events end at {expected - 1}, and the checkpoint that was kept sealed up to "
                    f"{anchor.last_seq}",
                    seq=expected,
                    kind=Damage.TRUNCATED,
                )
            if anchor.last_seq >= self._start.seq and (newest is None or anchor.number > newest.number):
                raise JournalTampered(
                    f"checkpoint {anchor.number} was kept elsewhere and is not in the journal",
                    seq=anchor.first_seq,
                    kind=Damage.CHECKPOINT,
                )
            if anchor.number not in self._used_anchors:
                raise AnchorUnused(
                    f"checkpoint {anchor.number} was kept, covers events up to {anchor.last_seq}, and the events here"
                    f" begin at {self._start.seq}: it proves nothing about them"
                )

    def _damage(
        self, row: Row, expected: int, segment: list[bytes], rest: Iterator[Row], *, sealed: bool
    ) -> JournalTampered:
        """Name the damage at the first wrong row. Slow paths are fine here."""
        seq, prev_hash, hash_ = row[0], row[9], row[10]
        if not isinstance(seq, int) or seq != expected:
            return _find_misplaced(seq, expected, rest)
        own_hash = _own_hash(row, seq)
        if prev_hash == segment[-1]:
            if next(rest, None) is None and not sealed:
                return _make_error(seq, Damage.TORN, "the last event does not match its own hash: its write was cut")
            return _make_error(seq, Damage.EDITED, "the event does not match its own hash")
        if own_hash == hash_:
            if prev_hash in segment:
                return _make_error(seq, Damage.FORKED, "the event follows an older one than its place says: two heads")
            replaced = seq - 1 if len(segment) > 1 else seq
            return _make_error(replaced, Damage.REPLACED, "the next event names another event here")
        for distance in range(1, _SEARCH_RADIUS):
            if hash_ in (_own_hash(row, seq + distance), _own_hash(row, seq - distance)):
                return _make_error(seq, Damage.REORDERED, "the event belongs to another place")
        return _make_error(seq, Damage.EDITED, "the event does not match its own hash, nor its predecessor's")


def _find_misplaced(seq: object, expected: int, rest: Iterator[Row]) -> JournalTampered:
    if not isinstance(seq, int):
        return _make_error(expected, Damage.EDITED, "the sequence number is not a number")
    if seq == expected - 1:
        return _make_error(seq, Damage.FORKED, "two events have this number: two heads")
    if seq < expected or any(row[0] == expected for row in rest):
        return _make_error(min(seq, expected), Damage.REORDERED, f"event {seq} stands where {expected} belongs")
    return _make_error(expected, Damage.MISSING, f"the next event is {seq}")


def _own_hash(row: Row, seq: int) -> bytes:
    try:
        return event_hash(seq, *row[1:10])
    except _UNHASHABLE:
        return b""


def _make_error(seq: int, kind: Damage, what: str) -> JournalTampered:
    return JournalTampered(f"event {seq}: {kind.value}: {what}", seq=seq, kind=kind)


def verify_journal(
    source: JournalSource, verifiers: Sequence[Verifier], *, anchors: Sequence[Checkpoint] = ()
) -> VerifyReport:
    verifier, _, items = walk_journal(source, verifiers, anchors=anchors)
    deque(items, maxlen=0)
    return verifier.report


def walk_journal(
    source: JournalSource,
    verifiers: Sequence[Verifier],
    *,
    anchors: Sequence[Checkpoint] = (),
    first_seq: int = 1,
    last_seq: int | None = None,
) -> tuple[JournalVerifier, Start, Iterator[Row | Checkpoint]]:
    """Return a verifier over one snapshot, where it starts, and the items it yields as they are checked.

    It ends with the checkpoint that covers ``last_seq``, if there is one: without it nothing proves the last events.
    """
    with ExitStack() as stack:
        snapshot = stack.enter_context(source.snapshot())
        start = _read_start(snapshot, first_seq)
        verifier = JournalVerifier(verifiers, anchors=anchors, start=start)
        opened = stack.pop_all()

    def walk() -> Iterator[Row | Checkpoint]:
        end = _find_seal(snapshot, last_seq) if last_seq is not None else 2**62
        with opened:
            yield from verifier.walk(_read_rows(snapshot, start.seq, end), _read_checkpoints(snapshot, start.seq, end))

    return verifier, start, walk()


def newest_checkpoint(reader: Reader) -> Checkpoint | None:
    rows = reader.read("SELECT document FROM checkpoints ORDER BY number DESC LIMIT 1")
    return parse_checkpoint(rows[0][0]) if rows else None


def _read_start(snapshot: Snapshot, first_seq: int) -> Start:
    if first_seq <= 1:
        return Start()
    hashes = list(snapshot.rows("SELECT hash FROM events WHERE seq = ?", (first_seq - 1,)))
    if not hashes:
        raise NoSuchEvent(f"there is no event {first_seq - 1} to start after")
    basis = "SELECT document FROM checkpoints WHERE last_seq < ? ORDER BY number DESC LIMIT 1"
    documents = list(snapshot.rows(basis, (first_seq,)))
    return Start(seq=first_seq, prev_hash=hashes[0][0], basis=_read_document(documents[0][0]) if documents else None)


def _find_seal(snapshot: Snapshot, last_seq: int) -> int:
    """Return where the checkpoint that covers this event ends, or the event itself."""
    query = "SELECT last_seq FROM checkpoints WHERE last_seq >= ? ORDER BY number LIMIT 1"
    return next((int(end) for (end,) in snapshot.rows(query, (last_seq,))), last_seq)


def _read_rows(snapshot: Snapshot, first_seq: int, last_seq: int) -> Iterator[Row]:
    seq = first_seq - 1
    query = f"SELECT {EVENT_COLUMNS} FROM events WHERE seq BETWEEN ? AND ? ORDER BY seq"  # noqa: S608
    try:
        for row in snapshot.rows(query, (first_seq, last_seq)):
            yield row
            seq = row[0]
    except DatabaseDamaged as error:
        raise JournalTampered(
            f"event {seq + 1}: unreadable: the database file is damaged here", seq=seq + 1, kind=Damage.UNREADABLE
        ) from error


def _read_checkpoints(snapshot: Snapshot, first_seq: int, last_seq: int) -> Iterator[Checkpoint]:
    query = "SELECT number, last_seq, document FROM checkpoints WHERE last_seq BETWEEN ? AND ? ORDER BY number"
    for number, sealed, document in snapshot.rows(query, (first_seq, last_seq)):
        checkpoint = _read_document(document)
        if (checkpoint.number, checkpoint.last_seq) != (number, sealed):
            raise JournalTampered(
                f"checkpoint {number} is stored as another one", seq=checkpoint.first_seq, kind=Damage.CHECKPOINT
            )
        yield checkpoint


def _read_document(document: bytes) -> Checkpoint:
    try:
        return parse_checkpoint(document)
    except InvalidCheckpoint as error:
        raise JournalTampered(f"a stored checkpoint cannot be read: {error}", seq=1, kind=Damage.CHECKPOINT) from error
