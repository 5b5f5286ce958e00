"""The hash that ties each event to the one before it.

The hashed text is a domain tag with a version, the numbers, the length of every field, then the fields: no two
different events share it. A change of this encoding is a new version and a new tag, never an edit of this one.
"""

import struct
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
