"""Merkle trees shaped as in RFC 6962: leaves and inner nodes are hashed under different prefixes, so neither can pass
for the other, and an uneven tree splits at the largest power of two below its size."""

from collections.abc import Sequence
from hashlib import sha256

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
