"""Checkpoints: signed statements about the journal so far, and the copy of the newest beside the database.

A checkpoint seals the events since the previous one under a Merkle root. It names the hash of the last event and the
digest of the previous checkpoint, and is signed. The owner of a kept checkpoint can later show that the events up to it
were cut off or rewritten.
"""

import base64
import binascii
import contextlib
import os
import struct
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from palyra.canonical import canonical_json
from palyra.config.state_dir import replace_file
from palyra.errors import InvalidInput, PalyraError, Tampered
from palyra.limits import KIB
from palyra.signing.dsse import Signer, Verifier

CHECKPOINT_FORMAT = "palyra.journal.checkpoint/1"
CHECKPOINT_NAME = "checkpoint.json"
# A checkpoint has about 600 bytes.
MAX_CHECKPOINT_BYTES = 16 * KIB
HASH_BYTES = 32

_DOMAIN = b"palyra.journal.checkpoint/v1\x00"
_DIGEST_DOMAIN = b"palyra.journal.checkpoint-digest/v1\x00"
_NUMBERS_AND_LENGTHS = struct.Struct(">qqqq4I")

# The predecessor that the first checkpoint names.
GENESIS_CHECKPOINT = sha256(b"palyra.journal.checkpoint-genesis/v1\x00").digest()


class InvalidCheckpoint(InvalidInput):
    code = "journal.invalid_checkpoint"
    hint = "a checkpoint is the JSON document that `palyra journal checkpoint` prints"


class ForgedCheckpoint(Tampered):
    code = "journal.forged_checkpoint"
    hint = "check which public key was given; if it is the right one, the checkpoint was not made by its holder"


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    first_seq: int
    last_seq: int
    time_ms: int
    head_hash: bytes
    root: bytes
    previous: bytes
    key_id: str
    signature: bytes = b""

    def signed_bytes(self) -> bytes:
        key_id = self.key_id.encode()
        numbers = _NUMBERS_AND_LENGTHS.pack(
            self.number,
            self.first_seq,
            self.last_seq,
            self.time_ms,
            len(self.head_hash),
            len(self.root),
            len(self.previous),
            len(key_id),
        )
        return b"".join((_DOMAIN, numbers, self.head_hash, self.root, self.previous, key_id))

    def digest(self) -> bytes:
        return sha256(_DIGEST_DOMAIN + self.signed_bytes()).digest()

    def to_json(self) -> bytes:
        return canonical_json(
            {
                "format": CHECKPOINT_FORMAT,
                "number": self.number,
                "first_seq": self.first_seq,
                "last_seq": self.last_seq,
                "time_ms": self.time_ms,
                "head_hash": self.head_hash.hex(),
                "root": self.root.hex(),
                "previous": self.previous.hex(),
                "key_id": self.key_id,
                "signature": base64.b64encode(self.signature).decode(),
            }
        )


class _Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: str
    number: int
    first_seq: int
    last_seq: int
    time_ms: int
    head_hash: str
    root: str
    previous: str
    key_id: str
    signature: str


def parse_checkpoint(raw: bytes) -> Checkpoint:
    """Parse strictly: refuse unknown formats, unknown fields and values of the wrong shape."""
    try:
        document = msgspec.json.decode(raw, type=_Document)
        if document.format != CHECKPOINT_FORMAT:
            raise InvalidCheckpoint(f"this checkpoint has the format {document.format[:64]!r}, which is not known here")
        checkpoint = Checkpoint(
            number=document.number,
            first_seq=document.first_seq,
            last_seq=document.last_seq,
            time_ms=document.time_ms,
            head_hash=bytes.fromhex(document.head_hash),
            root=bytes.fromhex(document.root),
            previous=bytes.fromhex(document.previous),
            key_id=document.key_id,
            signature=base64.b64decode(document.signature, validate=True),
        )
        checkpoint.signed_bytes()
    except (msgspec.MsgspecError, ValueError, binascii.Error, struct.error) as error:
        raise InvalidCheckpoint(f"this is not a checkpoint: {error}") from error
    hashes = (checkpoint.head_hash, checkpoint.root, checkpoint.previous)
    in_order = 1 <= checkpoint.first_seq <= checkpoint.last_seq and checkpoint.number >= 1
    if not in_order or any(len(each) != HASH_BYTES for each in hashes):
        raise InvalidCheckpoint("this checkpoint names impossible numbers or hashes")
    return checkpoint


def make_checkpoint(
    previous: Checkpoint | None, hashes: Sequence[bytes], *, time_ms: int, signer: Signer
) -> Checkpoint:
    """Seal the events with these ``hashes``, which are all those since ``previous``, and at least one."""
    if not hashes:
        raise InvalidCheckpoint("a checkpoint seals at least one event")
    first_seq = previous.last_seq + 1 if previous else 1
    unsigned = Checkpoint(
        number=previous.number + 1 if previous else 1,
        first_seq=first_seq,
        last_seq=first_seq + len(hashes) - 1,
        time_ms=time_ms,
        head_hash=hashes[-1],
        root=merkle_root(hashes),
        previous=previous.digest() if previous else GENESIS_CHECKPOINT,
        key_id=signer.key_id,
    )
    return msgspec.structs.replace(unsigned, signature=signer.sign(unsigned.signed_bytes()))


def verify_signature(checkpoint: Checkpoint, verifiers: Sequence[Verifier]) -> None:
    """Raise ``ForgedCheckpoint`` unless one of ``verifiers`` is the named key and accepts the signature."""
    for verifier in verifiers:
        if verifier.key_id == checkpoint.key_id:
            try:
                verifier.verify(checkpoint.signed_bytes(), checkpoint.signature)
            except PalyraError as error:
                raise ForgedCheckpoint(
                    f"checkpoint {checkpoint.number} has a signature that {checkpoint.key_id} did not make",
                    number=checkpoint.number,
                ) from error
            return
    raise ForgedCheckpoint(
        f"checkpoint {checkpoint.number} is signed by {checkpoint.key_id}, which is not a key given here",
        number=checkpoint.number,
    )


def keep_beside(path: Path, checkpoint: Checkpoint) -> None:
    """Replace the copy at ``path`` by a newer one. A full disk leaves the older copy, which is still an anchor."""
    with contextlib.suppress(InvalidCheckpoint, OSError):
        if load_checkpoint(path).number >= checkpoint.number:
            return
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            replace_file(folder, path.name, checkpoint.to_json() + b"\n")
        finally:
            os.close(folder)


def load_checkpoint(path: Path) -> Checkpoint:
    with path.open("rb") as file:
        return parse_checkpoint(file.read(MAX_CHECKPOINT_BYTES).strip())


# Merkle trees shaped as in RFC 6962: leaves and inner nodes are hashed under different prefixes, so neither can pass
# for the other, and an uneven tree splits at the largest power of two below its size.

_LEAF = b"\x00"
_NODE = b"\x01"


def merkle_root(entries: Sequence[bytes]) -> bytes:
    """Return the root over ``entries``; without entries it is the hash of no bytes, as in the RFC."""
    if not entries:
        return sha256(b"").digest()
    level = [sha256(_LEAF + entry).digest() for entry in entries]
    while len(level) > 1:
        level = _pair(level)
    return level[0]


def _pair(level: list[bytes]) -> list[bytes]:
    # An odd last node moves up unchanged: that pairing from the left gives the RFC's split at powers of two.
    paired = [sha256(_NODE + left + right).digest() for left, right in zip(level[::2], level[1::2], strict=False)]
    if len(level) & 1:
        paired.append(level[-1])
    return paired
