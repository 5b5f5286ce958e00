"""Journal events: as their author states them, and as they stand in the chain."""

import re
from typing import Any, Self

import msgspec

from palyra.errors import InvalidInput

# Dotted lower-case words in the past tense: ``call.finished``.
KIND = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")
MAX_KIND_CHARS = 64
# Actor, principal, run and call are names; a longer one is cut.
MAX_FIELD_CHARS = 256

# The columns of a stored event, and with text as UTF-8 bytes the row of a database or an export: ``Event``'s fields.
EVENT_COLUMNS = "seq, id, time_ms, kind, actor, principal, run, call, payload, prev_hash, hash"
Row = tuple[int, bytes, int, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes]


class InvalidEvent(InvalidInput):
    code = "journal.invalid_event"
    hint = "an event kind is dotted lower-case words such as call.finished"


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event before it has a place. The payload may hold any JSON value, and secrets: those are redacted."""

    kind: str
    actor: str
    payload: dict[str, Any] = {}
    principal: str = ""
    run: str = ""
    call: str = ""


class Event(msgspec.Struct, frozen=True, gc=False):
    """An event in its place. ``payload`` is canonical JSON, already redacted: what was hashed, byte for byte."""

    seq: int
    id: str
    time_ms: int
    kind: str
    actor: str
    principal: str
    run: str
    call: str
    payload: bytes
    prev_hash: bytes
    hash: bytes

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Decode a row. Invalid bytes become escapes: a damaged journal must stay readable until it is verified."""
        seq, id_, time_ms, kind, actor, principal, run, call, payload, prev_hash, hash_ = row
        names = map(_text, (kind, actor, principal, run, call))
        values: tuple[Any, ...] = (seq, _text(id_), time_ms, *names, payload, prev_hash, hash_)
        return cls(*values)

    def row(self) -> Row:
        return (
            self.seq,
            self.id.encode(),
            self.time_ms,
            self.kind.encode(),
            self.actor.encode(),
            self.principal.encode(),
            self.run.encode(),
            self.call.encode(),
            self.payload,
            self.prev_hash,
            self.hash,
        )

    def payload_value(self) -> Any:
        """Return the payload as a JSON value, or as a string if it is damaged."""
        try:
            return msgspec.json.decode(self.payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self.payload.decode("utf-8", "backslashreplace")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
