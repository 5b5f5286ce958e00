"""What a worker and its egress proxy say to each other on the doors' socket.

One message is one packet, JSON; the sockets of a door come with the packet that asks for it, in the order of ``kinds``.
A worker names a lease and gets what the daemon granted it; there is no message by which it could ask for more.
"""

from typing import Annotated, Any, Final, Literal

import msgspec

from palyra.workers.egress import limits
from palyra.workers.egress.errors import BadDoorMessage

PROTOCOL_VERSION: Final = 1
Kind = Literal["proxy", "transparent", "dns_udp", "dns_tcp"]
_Text = Annotated[str, msgspec.Meta(max_length=limits.MAX_FIELD_CHARS)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
_Kinds = Annotated[tuple[Kind, ...], msgspec.Meta(min_length=1, max_length=limits.MAX_DOOR_SOCKETS)]


class _Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="ask"):
    """``id`` is repeated in the answer."""

    id: _Number


class AskBinding(_Asked, frozen=True, kw_only=True, tag="bind"):
    worker_id: _Text
    nonce: _Text


class AskGrant(_Asked, frozen=True, kw_only=True, tag="grant"):
    """What the lease may reach; waits a while for the daemon's word."""

    lease_id: _Text
    fence: _Number


class AskDoor(_Asked, frozen=True, kw_only=True, tag="open"):
    lease_id: _Text
    fence: _Number
    kinds: _Kinds


class AskClose(_Asked, frozen=True, kw_only=True, tag="close"):
    lease_id: _Text
    fence: _Number


Asked = AskBinding | AskGrant | AskDoor | AskClose


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """``payload`` and ``signature`` are the signed binding, in hex."""

    egress_id: str
    policy_digest_sha256: str
    payload: str
    signature: str


class Granted(msgspec.Struct, frozen=True, kw_only=True):
    """What is left for the lease: ``max_bytes`` without what its earlier doors moved."""

    hosts: tuple[str, ...]
    max_bytes: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What went through a door."""

    connections: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    refused: int = 0
    violations: int = 0
    refusals: tuple[dict[str, Any], ...] = ()


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str
    hint: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of the fields, or none of them for a door that was opened. ``id`` 0 is about the connection itself."""

    id: int
    problem: Problem | None = None
    bound: Bound | None = None
    granted: Granted | None = None
    usage: Usage | None = None


_asked = msgspec.json.Decoder(Asked)
_answer = msgspec.json.Decoder(Answer)


def read_asked(packet: bytes) -> Asked:
    try:
        asked: Asked = _asked.decode(packet)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadDoorMessage(f"not a message of version {PROTOCOL_VERSION}: {error}") from error
    return asked


def read_answer(packet: bytes) -> Answer:
    try:
        return _answer.decode(packet)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadDoorMessage(f"not an answer of version {PROTOCOL_VERSION}: {error}") from error


def written(message: Asked | Answer) -> bytes:
    return msgspec.json.encode(message)
