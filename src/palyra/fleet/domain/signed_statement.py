"""A document that a device signed: canonical JSON, and a signature over it and its type.

The type is part of what is signed, so a statement of one kind never passes for another. A reader refuses any other
spelling of the same document: what was signed is what was read.
"""

from typing import Protocol, TypeVar

import msgspec

from palyra.canonical import NotCanonical, canonical_json
from palyra.errors import Tampered
from palyra.fleet.limits import MAX_STATEMENT_BYTES
from palyra.signing.dsse import pae

T = TypeVar("T", bound=msgspec.Struct)


class MalformedStatement(Tampered):
    code = "worker_statement.malformed"
    hint = "the worker sent what is not a statement of this version: update the worker or the daemon"


class DeviceSigner(Protocol):
    def sign(self, message: bytes) -> bytes: ...


class DeviceVerifier(Protocol):
    """The public key that a device's certificate carries."""

    @property
    def key_id(self) -> str: ...

    def verify(self, message: bytes, signature: bytes) -> None:
        """Raises BadSignature unless this key signed exactly this message."""


class SignedStatement(msgspec.Struct, frozen=True):
    payload: bytes
    signature: bytes


def sign_statement(statement_type: str, statement: msgspec.Struct, signer: DeviceSigner) -> SignedStatement:
    payload = canonical_json(msgspec.to_builtins(statement))
    return SignedStatement(payload, signer.sign(pae(statement_type, payload)))


def open_statement(statement_type: str, kind: type[T], signed: SignedStatement, key: DeviceVerifier) -> T:
    """What the key signed; raises BadSignature or MalformedStatement. Nothing is read before it is verified."""
    if len(signed.payload) > MAX_STATEMENT_BYTES:
        raise MalformedStatement(f"a statement has at most {MAX_STATEMENT_BYTES} bytes")
    key.verify(pae(statement_type, signed.payload), signed.signature)
    try:
        statement = msgspec.json.decode(signed.payload, type=kind)
        # Has one reading: two values for a key, or a second spelling of one, would not come out the same.
        if canonical_json(msgspec.to_builtins(statement)) != signed.payload:
            raise MalformedStatement("the statement is not in its canonical spelling")
    except (NotCanonical, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedStatement(f"not a {kind.__name__}: {error}") from error
    return statement
