"""The format of the state file, a unit of work over it in memory, and the retention of records."""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from palyra.devicelink.limits import MAX_ENDED_CODES, MAX_ENDED_PAIRINGS, MAX_FINISHED_REQUESTS
from palyra.nodes.domain.records import (
    CapabilityRequestRecord,
    DevicePairingCodeRecord,
    DevicePairingRequestRecord,
    NodeRecord,
)
from palyra.nodes.store.port import NodeStateUnreadable
from palyra.store.event import NewEvent


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


_R = TypeVar("_R", bound=_Identified)


def surplus_codes(codes: Iterable[DevicePairingCodeRecord], now_ms: int) -> list[str]:
    return _oldest([code for code in codes if code.ended(now_ms)], MAX_ENDED_CODES)


def surplus_pairings(pairings: Iterable[DevicePairingRequestRecord]) -> list[str]:
    return _oldest([pairing for pairing in pairings if not pairing.open()], MAX_ENDED_PAIRINGS)


def surplus_requests(requests: Iterable[CapabilityRequestRecord]) -> list[str]:
    return _oldest([request for request in requests if not request.open()], MAX_FINISHED_REQUESTS)


def _oldest(ended: Sequence[_R], kept: int) -> list[str]:
    excess = len(ended) - kept
    return sorted(record.id for record in ended)[:excess] if excess > 0 else []


# The state file is one JSON document with its version, its revision and the digest of its content.
#
# The digest detects a truncated or changed document. A document of an unknown version is not damaged: it is left
# unchanged.

FORMAT: Final = "palyra.node-runtime"
VERSION: Final = 1


class DamagedDocument(Exception):
    """A damaged document. The caller decides what to use instead."""


class NodeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of the file, by id. The dicts never change: a change makes a new document."""

    revision: int = 0
    codes: dict[str, DevicePairingCodeRecord] = {}
    pairings: dict[str, DevicePairingRequestRecord] = {}
    nodes: dict[str, NodeRecord] = {}
    requests: dict[str, CapabilityRequestRecord] = {}


class _Lists(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    codes: list[DevicePairingCodeRecord]
    pairings: list[DevicePairingRequestRecord]
    nodes: list[NodeRecord]
    requests: list[CapabilityRequestRecord]


class _Envelope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: str
    version: int
    revision: int
    sha256: str
    state: msgspec.Raw


class _Opening(msgspec.Struct, frozen=True, kw_only=True):
    format: str
    version: int


def encode_records(records: object) -> bytes:
    """Encode records, with typed ids as text."""
    return msgspec.json.encode(records, enc_hook=_as_text)


def encode(document: NodeDocument) -> bytes:
    state = encode_records(
        _Lists(
            codes=list(document.codes.values()),
            pairings=list(document.pairings.values()),
            nodes=list(document.nodes.values()),
            requests=list(document.requests.values()),
        )
    )
    envelope = _Envelope(
        format=FORMAT,
        version=VERSION,
        revision=document.revision,
        sha256=_digest(document.revision, state),
        state=msgspec.Raw(state),
    )
    return msgspec.json.encode(envelope) + b"\n"


def decode(raw: bytes) -> NodeDocument:
    try:
        opening = msgspec.json.decode(raw, type=_Opening)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DamagedDocument(f"not a state document: {error}") from error
    if opening.format != FORMAT:
        raise DamagedDocument("a JSON document of another kind")
    if opening.version != VERSION:
        raise NodeStateUnreadable(
            f"the state of devices has version {opening.version}; this program knows {VERSION}",
            hint="use the version of Palyra that wrote it, or a newer one",
        )
    try:
        envelope = msgspec.json.decode(raw, type=_Envelope)
        state = bytes(envelope.state)
        if envelope.sha256 != _digest(envelope.revision, state):
            raise DamagedDocument("the content is not the one whose digest it carries")
        lists = msgspec.json.decode(state, type=_Lists)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DamagedDocument(f"not understood: {error}") from error
    return NodeDocument(
        revision=envelope.revision,
        codes=_by_id(lists.codes),
        pairings=_by_id(lists.pairings),
        nodes=_by_id(lists.nodes),
        requests=_by_id(lists.requests),
    )


def _digest(revision: int, state: bytes) -> str:
    return sha256(b"%s %d %d\n" % (FORMAT.encode(), VERSION, revision) + state).hexdigest()


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"a record may not hold a {type(value).__name__}")


def _by_id(records: list[Any]) -> dict[str, Any]:
    found = {record.id: record for record in records}
    if len(found) != len(records):
        raise DamagedDocument("two records have one id")
    return found


# A unit of work over a document in memory: reads see the unit's own writes, and the document never changes.

R = TypeVar("R", bound=_Identified)
Seen = TypeVar("Seen", covariant=True)
Append = Callable[[NewEvent], object]


class ReadOnlyUnit(Exception):
    """A programming error: a change during a read."""


class MemoryShelf(Generic[R]):
    """A shelf over a dict, which it copies before the first change."""

    def __init__(self, records: dict[str, R], *, writable: bool) -> None:
        self.records = records
        self.changed = False
        self._writable = writable

    def get(self, id_: str) -> R | None:
        return self.records.get(id_)

    def put(self, record: R) -> None:
        self._own()[record.id] = record

    def delete(self, id_: str) -> None:
        if id_ in self.records:
            del self._own()[id_]

    def list(self) -> Sequence[R]:
        return [self.records[id_] for id_ in sorted(self.records)]

    def _own(self) -> dict[str, R]:
        if not self._writable:
            raise ReadOnlyUnit("a look at the state changes nothing: use transact")
        if not self.changed:
            self.records, self.changed = dict(self.records), True
        return self.records


class DocumentUnit:
    """``append`` is None for a read."""

    def __init__(self, document: NodeDocument, now_ms: int, append: Append | None) -> None:
        writable = append is not None
        self.now_ms = now_ms
        self.codes: MemoryShelf[DevicePairingCodeRecord] = MemoryShelf(document.codes, writable=writable)
        self.pairings: MemoryShelf[DevicePairingRequestRecord] = MemoryShelf(document.pairings, writable=writable)
        self.nodes: MemoryShelf[NodeRecord] = MemoryShelf(document.nodes, writable=writable)
        self.requests: MemoryShelf[CapabilityRequestRecord] = MemoryShelf(document.requests, writable=writable)
        self._document = document
        self._append = append

    def append(self, event: NewEvent) -> None:
        if self._append is None:
            raise ReadOnlyUnit("a look at the state records nothing: use transact")
        self._append(event)

    def outcome(self) -> NodeDocument | None:
        """Return the next document, within bounds, or None if nothing changed."""
        shelves: tuple[MemoryShelf[Any], ...] = (self.codes, self.pairings, self.nodes, self.requests)
        if not any(shelf.changed for shelf in shelves):
            return None
        keep_within_bounds(self)
        return msgspec.structs.replace(
            self._document,
            revision=self._document.revision + 1,
            codes=self.codes.records,
            pairings=self.pairings.records,
            nodes=self.nodes.records,
            requests=self.requests.records,
        )


class TrackedShelf(Protocol[Seen]):
    """A shelf that knows whether this unit changed it."""

    @property
    def changed(self) -> bool: ...

    def list(self) -> Sequence[Seen]: ...

    def delete(self, id_: str) -> None: ...


class TrackedUnit(Protocol):
    @property
    def now_ms(self) -> int: ...

    @property
    def codes(self) -> TrackedShelf[DevicePairingCodeRecord]: ...

    @property
    def pairings(self) -> TrackedShelf[DevicePairingRequestRecord]: ...

    @property
    def requests(self) -> TrackedShelf[CapabilityRequestRecord]: ...


def keep_within_bounds(unit: TrackedUnit) -> None:
    """Delete the oldest ended records. Every store calls this at the end of a unit of work."""
    if unit.codes.changed:
        for id_ in surplus_codes(unit.codes.list(), unit.now_ms):
            unit.codes.delete(id_)
    if unit.pairings.changed:
        for id_ in surplus_pairings(unit.pairings.list()):
            unit.pairings.delete(id_)
    if unit.requests.changed:
        for id_ in surplus_requests(unit.requests.list()):
            unit.requests.delete(id_)
