"""The format of the state file, a unit of work over it in memory, and the retention of records."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final, TypeVar

import msgspec

from palyra.nodes.domain.records import (
    CapabilityRequestRecord,
    DevicePairingCodeRecord,
    DevicePairingRequestRecord,
    NodeRecord,
)
from palyra.nodes.store.port import Append, Identified, NodeStateUnreadable, NodeUnit, Shelf

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
    state = encode_records({name: list(getattr(document, name).values()) for name in _Lists.__struct_fields__})
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
    records = {name: _by_id(getattr(lists, name)) for name in _Lists.__struct_fields__}
    return NodeDocument(revision=envelope.revision, **records)


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

R = TypeVar("R", bound=Identified)


class MemoryShelf(Shelf[R]):
    """A shelf over a dict, which it copies before the first change."""

    def __init__(self, records: dict[str, R], *, writable: bool) -> None:
        super().__init__(writable=writable)
        self.records = records

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
        if not self.changed:
            self._note_change()
            self.records = dict(self.records)
        return self.records


class DocumentUnit(NodeUnit):
    def __init__(self, document: NodeDocument, now_ms: int, append: Append | None) -> None:
        def make_shelf(name: str, _type: type[Any]) -> MemoryShelf[Any]:
            return MemoryShelf(getattr(document, name), writable=append is not None)

        super().__init__(make_shelf, now_ms, append)
        self._document = document

    def outcome(self) -> NodeDocument | None:
        """Return the next document, within bounds, or None if nothing changed."""
        if not self.keep_within_bounds():
            return None
        records = {name: getattr(self, name).records for name in _Lists.__struct_fields__}
        return msgspec.structs.replace(self._document, revision=self._document.revision + 1, **records)
