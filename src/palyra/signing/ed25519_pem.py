"""The PEM text of an Ed25519 key, which has one spelling for each key (RFC 8410): its 32 bytes and nothing to choose.

A text that is spelled so is read here. Any other is for the library, which knows every other kind of key, and whose
part for that takes longer to import than all else that signing needs.
"""

import base64
import binascii
from typing import Final

_KEY_BYTES: Final = 32
# What stands before the 32 bytes in DER: PrivateKeyInfo, and SubjectPublicKeyInfo, both with id-Ed25519.
_PRIVATE: Final = (b"PRIVATE KEY", bytes.fromhex("302e020100300506032b657004220420"))
_PUBLIC: Final = (b"PUBLIC KEY", bytes.fromhex("302a300506032b6570032100"))


def private_key_in(pem: bytes) -> bytes | None:
    return _read(pem, *_PRIVATE)


def public_key_in(pem: bytes) -> bytes | None:
    return _read(pem, *_PUBLIC)


def private_pem(key: bytes) -> bytes:
    return _spelled(key, *_PRIVATE)


def public_pem(key: bytes) -> bytes:
    return _spelled(key, *_PUBLIC)


def _read(pem: bytes, kind: bytes, prefix: bytes) -> bytes | None:
    lines = pem.split(b"\n")
    try:
        key = base64.b64decode(lines[1], validate=True)[len(prefix) :]
    except (IndexError, binascii.Error):
        return None
    return key if len(key) == _KEY_BYTES and _spelled(key, kind, prefix) == pem else None


def _spelled(key: bytes, kind: bytes, prefix: bytes) -> bytes:
    if len(key) != _KEY_BYTES:
        raise ValueError("an Ed25519 key has 32 bytes")
    return b"-----BEGIN %s-----\n%s\n-----END %s-----\n" % (kind, base64.b64encode(prefix + key), kind)
