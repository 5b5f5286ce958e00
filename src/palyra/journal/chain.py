"""Hash chain of events, and the log that extends it.

The hashed text is a domain tag with a version, the numbers, the length of every field, then the fields: no two
different events share it. A change of this encoding is a new version and a new tag, never an edit of this one.
"""

import struct
from hashlib import sha256
from pathlib import Path

from palyra.clock import Clock
from palyra.ids import EventIds
from palyra.journal.checkpoint import Checkpoint, keep_beside, make_checkpoint, parse_checkpoint
from palyra.journal.redaction import Redactor
from palyra.limits import CHECKPOINT_EVERY_EVENTS, CHECKPOINT_EVERY_SECONDS
from palyra.signing.dsse import Signer
from palyra.store.event import KIND, MAX_KIND_CHARS, Event, InvalidEvent, NewEvent
from palyra.store.port import EMPTY_HEAD, Head, Reader, Transaction

_DOMAIN = b"palyra.journal.event/v1\x00"
_pack = struct.Struct(f">{len(_DOMAIN)}sqq8I").pack

# The predecessor that the first event names.
GENESIS_HASH = sha256(b"palyra.journal.genesis/v1\x00").digest()


def event_hash(
    seq: int,
    id_: bytes,
    time_ms: int,
    kind: bytes,
    actor: bytes,
    principal: bytes,
    run: bytes,
    call: bytes,
    payload: bytes,
    prev_hash: bytes,
) -> bytes:
    """Hash an event whose text fields are given as UTF-8 bytes."""
    prefix = _pack(
        _DOMAIN,
        seq,
        time_ms,
        len(id_),
        len(kind),
        len(actor),
        len(principal),
        len(run),
        len(call),
        len(payload),
        len(prev_hash),
    )
    return sha256(b"".join((prefix, id_, kind, actor, principal, run, call, payload, prev_hash))).digest()


class JournalLog:
    """The ``EventLog`` of a store: redacts events, extends the chain, and signs a checkpoint when one is due.

    A checkpoint is due after ``checkpoint_events``, and ``checkpoint_seconds`` after the first unsealed event.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        redactor: Redactor,
        signer: Signer,
        checkpoint_path: Path,
        checkpoint_events: int = CHECKPOINT_EVERY_EVENTS,
        checkpoint_seconds: float = CHECKPOINT_EVERY_SECONDS,
    ) -> None:
        self.events: list[Event] = []
        self._clock = clock
        self._redactor = redactor
        self._signer = signer
        self._checkpoint_path = checkpoint_path
        self._checkpoint_events = checkpoint_events
        self._checkpoint_seconds = checkpoint_seconds
        self._ids = EventIds()
        self._now_ms = 0
        self._head = self._first_head = EMPTY_HEAD
        # Up to here everything is sealed: at least, for another process may have sealed more.
        self._sealed = self._sealed_next = 0
        self._seal_at: float | None = None
        self._checkpoint: Checkpoint | None = None

    def resume(self, reader: Reader) -> None:
        for (sealed,) in reader.read("SELECT last_seq FROM checkpoints ORDER BY number DESC LIMIT 1"):
            self._sealed = sealed
        for (newest,) in reader.read("SELECT seq FROM events ORDER BY seq DESC LIMIT 1"):
            self._schedule(newest - self._sealed)

    def begin(self, head: Head, now_ms: int) -> None:
        self.events = []
        self._checkpoint, self._sealed_next = None, self._sealed
        self._now_ms = now_ms
        self._head = self._first_head = head if head != EMPTY_HEAD else (0, GENESIS_HASH)

    def append(self, new: NewEvent) -> Event:
        if len(new.kind) > MAX_KIND_CHARS or not KIND.fullmatch(new.kind):
            raise InvalidEvent(f"{new.kind[:MAX_KIND_CHARS]!r} is not an event kind")
        redactor, now_ms, (last_seq, prev_hash) = self._redactor, self._now_ms, self._head
        seq, id_, payload = last_seq + 1, self._ids.next(now_ms), redactor.payload(new.payload)
        names = redactor.fields(new.actor, new.principal, new.run, new.call)
        actor, principal, run, call = (name.encode() for name in names)
        hash_ = event_hash(
            seq, id_.encode(), now_ms, new.kind.encode(), actor, principal, run, call, payload, prev_hash
        )
        event = Event(seq, id_, now_ms, new.kind, *names, payload, prev_hash, hash_)
        self.events.append(event)
        self._head = seq, hash_
        return event

    def undo(self, length: int) -> None:
        del self.events[length:]
        self._head = (self.events[-1].seq, self.events[-1].hash) if self.events else self._first_head

    def seal(self, transaction: Transaction, *, now: bool) -> None:
        seq = self._head[0]
        now = now or (self._seal_at is not None and self._clock.monotonic() >= self._seal_at)
        if seq <= self._sealed or not (now or seq - self._sealed >= self._checkpoint_events):
            return
        documents = transaction.execute("SELECT document FROM checkpoints ORDER BY number DESC LIMIT 1")
        previous = parse_checkpoint(documents[0][0]) if documents else None
        after = previous.last_seq if previous else 0
        if seq > after and (now or seq - after >= self._checkpoint_events):
            rows = transaction.execute("SELECT hash FROM events WHERE seq > ? ORDER BY seq", (after,))
            hashes = [hash_ for (hash_,) in rows]
            self._checkpoint = made = make_checkpoint(previous, hashes, time_ms=self._now_ms, signer=self._signer)
            transaction.execute(
                "INSERT INTO checkpoints (number, last_seq, document) VALUES (?, ?, ?)",
                (made.number, made.last_seq, made.to_json()),
            )
            after = made.last_seq
        self._sealed_next = after

    def end(self, *, committed: bool) -> None:
        if committed:
            self._sealed = self._sealed_next
            self._schedule(self._head[0] - self._sealed)
            if self._checkpoint is not None:
                keep_beside(self._checkpoint_path, self._checkpoint)
        elif self._seal_at is not None:
            # The events stay unsealed. Try again after the usual time, not at once.
            self._seal_at = self._clock.monotonic() + self._checkpoint_seconds

    def wait_seconds(self) -> float | None:
        return None if self._seal_at is None else max(0.0, self._seal_at - self._clock.monotonic())

    def _schedule(self, unsealed: int) -> None:
        if unsealed <= 0:
            self._seal_at = None
        elif self._seal_at is None:
            self._seal_at = self._clock.monotonic() + self._checkpoint_seconds
