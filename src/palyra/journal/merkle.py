"""Merkle trees shaped as in RFC 6962: leaves and inner nodes are hashed under different prefixes, so neither can pass
for the other, and an uneven tree splits at the largest power of two below its size."""

from collections.abc import Sequence
from hashlib import sha256

from palyra.errors import Tampered

_LEAF = b"\x00"
_NODE = b"\x01"


class NotIncluded(Tampered):
    code = "journal.not_included"
    hint = "the event, the proof and the checkpoint do not belong together"


def leaf_hash(data: bytes) -> bytes:
    return sha256(_LEAF + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return sha256(_NODE + left + right).digest()


def merkle_root(entries: Sequence[bytes]) -> bytes:
    """The root over ``entries``; the root of nothing is the hash of nothing, as the RFC has it."""
    if not entries:
        return sha256(b"").digest()
    level = [sha256(_LEAF + entry).digest() for entry in entries]
    while len(level) > 1:
        level = _parents(level)
    return level[0]


def inclusion_proof(entries: Sequence[bytes], index: int) -> list[bytes]:
    """The sibling hashes from the leaf up that let someone with only the root check one entry."""
    if not 0 <= index < len(entries):
        raise IndexError(index)
    level = [leaf_hash(entry) for entry in entries]
    proof: list[bytes] = []
    while len(level) > 1:
        sibling = index ^ 1
        if sibling < len(level):
            proof.append(level[sibling])
        level = _parents(level)
        index >>= 1
    return proof


def verify_inclusion(entry: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> None:
    """Raises ``NotIncluded`` unless ``entry`` is at ``index`` among the ``size`` entries under ``root``."""
    if not 0 <= index < size:
        raise NotIncluded("the proof names a place outside the tree", index=index, size=size)
    node, place, width = leaf_hash(entry), index, size
    siblings = iter(proof)
    while width > 1:
        if place ^ 1 < width:
            sibling = next(siblings, None)
            if sibling is None:
                raise NotIncluded("the proof is too short", index=index, size=size)
            node = node_hash(sibling, node) if place & 1 else node_hash(node, sibling)
        place >>= 1
        width = (width + 1) >> 1
    if next(siblings, None) is not None or node != root:
        raise NotIncluded("the proof does not lead to the checkpoint's root", index=index, size=size)


def _parents(level: list[bytes]) -> list[bytes]:
    # An odd last node moves up unchanged: pairing from the left this way gives the RFC's split at powers of two.
    paired = [sha256(_NODE + left + right).digest() for left, right in zip(level[::2], level[1::2], strict=False)]
    if len(level) & 1:
        paired.append(level[-1])
    return paired
