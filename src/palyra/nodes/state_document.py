"""The state file's format: one JSON document that says its version, its revision and the digest of its content.

A truncated or changed document never reads as a shorter or other one: it is damaged, and says so. A document of a
version that this program does not know is not damaged, and is not touched.
"""

from hashlib import sha256
from typing import Any, Final

import msgspec

from palyra.nodes.records import (
    CapabilityRequestRecord,
    DevicePairingCodeRecord,
    DevicePairingRequestRecord,
    NodeRecord,
)
from palyra.nodes.state_port import NodeStateUnreadable

FORMAT: Final = "palyra.node-runtime"
VERSION: Final = 1


class DamagedDocument(Exception):
    """Why a document is none. Whoever reads files decides what to use instead."""


class NodeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Everything in the file, by id. The dicts are not changed after making: a change is a new document."""

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
    """Typed ids are stored as the text they are."""
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
