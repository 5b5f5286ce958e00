"""What a line of a server is, read without making anything of its content.

A few megabytes of brackets become a million objects and keep the event loop for seconds. So a message is looked at from
outside first: what nobody waits for is never taken apart, and what somebody waits for only if it is of ordinary shape.
"""

import re
from typing import Annotated, Final

import msgspec
from msgspec import Meta

# Of an id or a method. An id is kept until it was answered.
MAX_NAME_CHARS: Final = 256

_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


class Envelope(msgspec.Struct, frozen=True):
    """A request has both, a notification a method, an answer an id."""

    id: int | Annotated[str, Meta(max_length=MAX_NAME_CHARS)] | None = None
    method: Annotated[str, Meta(max_length=MAX_NAME_CHARS)] | None = None

    @property
    def asked(self) -> str:
        """The id of an answer, in the one spelling in which ids are compared."""
        return str(self.id)


_decode: Final = msgspec.json.Decoder(Envelope).decode


def read_envelope(line: bytes) -> Envelope | None:
    """None of what is no message at all."""
    try:
        return _decode(line)
    except (msgspec.MsgspecError, RecursionError):
        return None


def containers_in(line: bytes, enough: int) -> int:
    """How many lists and objects a line of JSON has. Exact only where they may be more than ``enough``."""
    most = line.count(b"[") + line.count(b"{")
    if most <= enough:
        return most
    bare = _STRING.sub(b"", line)
    return bare.count(b"[") + bare.count(b"{")
