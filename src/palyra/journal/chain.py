"""The hash that ties each event to the one before it.

The hashed text is a domain tag with a version, the numbers, the length of every field, then the fields: no two
different events share it. A change of this encoding is a new version and a new tag, never an edit of this one.
"""

import struct
from collections.abc import Sequence
from hashlib import sha256

HASH_BYTES = 32

_DOMAIN = b"palyra.journal.event/v1\x00"
_pack = struct.Struct(f">{len(_DOMAIN)}sqq8I").pack

# What the first event names as its predecessor.
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
    """Text fields are given as UTF-8 bytes."""
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


# Merkle trees shaped as in RFC 6962: leaves and inner nodes are hashed under different prefixes, so neither can pass
# for the other, and an uneven tree splits at the largest power of two below its size.

_LEAF = b"\x00"
_NODE = b"\x01"


def merkle_root(entries: Sequence[bytes]) -> bytes:
    """The root over ``entries``; the root of nothing is the hash of nothing, as the RFC has it."""
    if not entries:
        return sha256(b"").digest()
    level = [sha256(_LEAF + entry).digest() for entry in entries]
    while len(level) > 1:
        level = _parents(level)
    return level[0]


def _parents(level: list[bytes]) -> list[bytes]:
    # An odd last node moves up unchanged: pairing from the left this way gives the RFC's split at powers of two.
    paired = [sha256(_NODE + left + right).digest() for left, right in zip(level[::2], level[1::2], strict=False)]
    if len(level) & 1:
        paired.append(level[-1])
    return paired
