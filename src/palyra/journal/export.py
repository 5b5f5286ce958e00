"""Export of the journal as lines of JSON that other tools read and that still verify.

A file is a header, one line per event in OCSF's shape with the chain's own fields under ``unmapped.palyra``, a line
per checkpoint after the last event it seals, and a trailer. An event's line is a function of the stored event: the
reader writes it again and compares. So it detects an edit of any field, also of those that the chain does not cover.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from palyra.canonical import canonical_json
from palyra.errors import InvalidInput
from palyra.journal.checkpoint import CHECKPOINT_FORMAT, Checkpoint, parse_checkpoint
from palyra.journal.verify import Damage, JournalTampered, Start
from palyra.limits import KIB, MAX_EVENT_PAYLOAD_BYTES
from palyra.store.event import Event, Row

EXPORT_FORMAT = "palyra.journal.export/1"
TRAILER_FORMAT = "palyra.journal.export-end/1"
# A payload, as JSON inside the rest of the line.
MAX_LINE_BYTES = MAX_EVENT_PAYLOAD_BYTES + 32 * KIB

# OCSF 1.3, class API Activity, activity Other: the class that fits a tool call asked for by an agent.
_OCSF_VERSION = "1.3.0"
_CATEGORY_UID = 6
_CLASS_UID = 6003
_ACTIVITY_OTHER = 99
_TYPE_UID = _CLASS_UID * 100 + _ACTIVITY_OTHER
_SEVERITY_INFORMATIONAL = 1


class NotAnExport(InvalidInput):
    code = "journal.not_an_export"
    hint = "expected a file written by `palyra journal export`"


class _Chained(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of ``Event``, in the same order."""

    seq: int
    id: str
    time_ms: int
    kind: str
    actor: str
    principal: str
    run: str
    call: str
    payload: msgspec.Raw
    prev_hash: str
    hash: str


class _Unmapped(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    palyra: _Chained


class _Line(msgspec.Struct, frozen=True):
    unmapped: _Unmapped


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    first_seq: int
    prev_hash: str
    basis: msgspec.Raw = msgspec.Raw(b"null")


class _Trailer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    last_seq: int
    head_hash: str
    sealed_through: int


_encode = msgspec.json.Encoder().encode
_decode_line = msgspec.json.Decoder(_Line).decode


def event_line(event: Event) -> bytes:
    """Write an event's line, without its newline."""
    *plain, payload, prev_hash, hash_ = msgspec.structs.astuple(event)
    chained = _Chained(*(*plain, msgspec.Raw(payload), prev_hash.hex(), hash_.hex()))
    ocsf: dict[str, Any] = {
        "activity_id": _ACTIVITY_OTHER,
        "activity_name": event.kind,
        "actor": {"user": {"name": event.principal or event.actor}, "app_name": event.actor},
        "api": {"operation": event.kind, "request": {"uid": event.call}},
        "category_uid": _CATEGORY_UID,
        "class_uid": _CLASS_UID,
        "metadata": {
            "correlation_uid": event.run,
            "log_name": "palyra.journal",
            "product": {"name": "Palyra", "vendor_name": "Palyra"},
            "sequence": event.seq,
            "uid": event.id,
            "version": _OCSF_VERSION,
        },
        "severity_id": _SEVERITY_INFORMATIONAL,
        "time": event.time_ms,
        "type_uid": _TYPE_UID,
        "unmapped": {"palyra": chained},
    }
    return _encode(ocsf)


def export_lines(items: Iterable[Row | Checkpoint], start: Start) -> Iterator[bytes]:
    """Yield the file's lines. ``items`` come from ``JournalVerifier.walk``, which refuses a damaged journal."""
    basis = msgspec.Raw(start.basis.to_json() if start.basis else b"null")
    yield _encode(_Header(EXPORT_FORMAT, start.seq, start.prev_hash.hex(), basis)) + b"\n"
    last_seq, head_hash, sealed_through = start.seq - 1, start.prev_hash, 0
    for item in items:
        if isinstance(item, Checkpoint):
            sealed_through = item.last_seq
            yield item.to_json() + b"\n"
        else:
            last_seq, head_hash = item[0], item[10]
            _check_payload(last_seq, item[8])
            yield event_line(Event.from_row(item)) + b"\n"
    trailer = {
        "format": TRAILER_FORMAT,
        "last_seq": last_seq,
        "head_hash": head_hash.hex(),
        "sealed_through": sealed_through,
    }
    yield canonical_json(trailer) + b"\n"


def _check_payload(seq: int, payload: bytes) -> None:
    """Refuse a payload that is not canonical JSON: it is copied into the line, and could add lines."""
    try:
        canonical = canonical_json(msgspec.json.decode(payload)) == payload
    except (msgspec.MsgspecError, InvalidInput):
        canonical = False
    if not canonical:
        raise JournalTampered(f"event {seq}: edited: the payload is not canonical JSON", seq=seq, kind=Damage.EDITED)


class ExportReader:
    """Reader of an exported file: once for its header, checkpoints and end, once for its events."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self.checkpoints: list[Checkpoint] = []
        header: _Header | None = None
        trailer: _Trailer | None = None
        last_line = b""
        for line in lines:
            last_line = line
            if header is None:
                header = _read_header(line)
            elif _is_checkpoint(line):
                self.checkpoints.append(parse_checkpoint(line))
            elif _is_trailer(line):
                trailer = _read_trailer(line)
        if header is None:
            raise NotAnExport("the file is empty")
        basis = bytes(header.basis)
        self.start = Start(
            seq=header.first_seq,
            prev_hash=_unhex(header.prev_hash),
            basis=None if basis == b"null" else parse_checkpoint(basis),
        )
        self._trailer = trailer if last_line.endswith(b"\n") and _is_trailer(last_line) else None

    def rows(self, lines: Iterable[bytes]) -> Iterator[Row]:
        remaining = iter(lines)
        next(remaining, None)
        expected, head_hash = self.start.seq, self.start.prev_hash.hex()
        for line in remaining:
            if _is_checkpoint(line):
                continue
            if _is_trailer(line):
                break
            row = _read_event(line, expected, torn=self._trailer is None)
            expected, head_hash = row[0] + 1, row[10].hex()
            yield row
        if self._trailer is None:
            raise JournalTampered(
                f"the file ends after event {expected - 1} without its last line", seq=expected, kind=Damage.TORN
            )
        if next(remaining, None) is not None:
            raise JournalTampered("the file goes on after its last line", seq=expected, kind=Damage.FORKED)
        sealed_through = self.checkpoints[-1].last_seq if self.checkpoints else 0
        stated = (self._trailer.last_seq, self._trailer.head_hash, self._trailer.sealed_through)
        if stated != (expected - 1, head_hash, sealed_through):
            raise JournalTampered(
                f"the file says it ends at event {self._trailer.last_seq}, and ends at {expected - 1}",
                seq=expected,
                kind=Damage.TRUNCATED,
            )


def _read_event(line: bytes, expected: int, *, torn: bool) -> Row:
    try:
        chained = _decode_line(line).unmapped.palyra
        *plain, payload, prev_hash, hash_ = msgspec.structs.astuple(chained)
        event = Event(*(*plain, bytes(payload), bytes.fromhex(prev_hash), bytes.fromhex(hash_)))
    except (msgspec.MsgspecError, ValueError) as error:
        if torn and not line.endswith(b"\n"):
            raise JournalTampered(
                f"event {expected}: torn: the line was cut", seq=expected, kind=Damage.TORN
            ) from error
        raise JournalTampered(
            f"event {expected}: edited: the line is not an event", seq=expected, kind=Damage.EDITED
        ) from error
    if event_line(event) + b"\n" != line:
        raise JournalTampered(
            f"event {event.seq}: edited: the line differs from its event", seq=event.seq, kind=Damage.EDITED
        )
    return event.row()


def _read_header(line: bytes) -> _Header:
    try:
        header = msgspec.json.decode(line, type=_Header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotAnExport(f"the first line is not an export's header: {error}") from error
    if header.format != EXPORT_FORMAT:
        raise NotAnExport(f"the file has the format {header.format[:64]!r}, which is not known here")
    return header


def _read_trailer(line: bytes) -> _Trailer | None:
    try:
        return msgspec.json.decode(line, type=_Trailer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _is_checkpoint(line: bytes) -> bool:
    # Event lines begin with their OCSF fields; nothing in a payload can stand at the start of a line.
    return line.startswith(b'{"first_seq":') and f'"format":"{CHECKPOINT_FORMAT}"'.encode() in line


def _is_trailer(line: bytes) -> bool:
    return line.startswith(f'{{"format":"{TRAILER_FORMAT}"'.encode())


def _unhex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise NotAnExport("the header's hash is not hexadecimal") from error
