"""A document that a device signed: canonical JSON, and a signature over it and its type.

The signature covers the type, so a statement of one kind never passes for another. A reader refuses every spelling of
the document but the canonical one.
"""

from typing import ClassVar, Protocol, TypeVar

import msgspec

from palyra.canonical import NotCanonical, canonical_json
from palyra.errors import Tampered
from palyra.fleet.limits import MAX_STATEMENT_BYTES
from palyra.signing.dsse import Verifier, pae


class MalformedStatement(Tampered):
    code = "worker_statement.malformed"
    hint = "the worker sent no statement of this version: update the worker or the daemon"


class DeviceSigner(Protocol):
    def sign(self, message: bytes) -> bytes: ...


class Statement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    statement_type: ClassVar[str]


T = TypeVar("T", bound=Statement)


class SignedStatement(msgspec.Struct, frozen=True):
    payload: bytes
    signature: bytes


def sign_statement(statement: Statement, signer: DeviceSigner) -> SignedStatement:
    payload = canonical_json(msgspec.to_builtins(statement))
    return SignedStatement(payload, signer.sign(pae(statement.statement_type, payload)))


def open_statement(kind: type[T], signed: SignedStatement, key: Verifier) -> T:
    """Verify a statement, then read it. Raise BadSignature or MalformedStatement."""
    if len(signed.payload) > MAX_STATEMENT_BYTES:
        raise MalformedStatement(f"a statement has at most {MAX_STATEMENT_BYTES} bytes")
    key.verify(pae(kind.statement_type, signed.payload), signed.signature)
    try:
        statement = msgspec.json.decode(signed.payload, type=kind)
        # A repeated key or another spelling of a value does not survive the comparison.
        if canonical_json(msgspec.to_builtins(statement)) != signed.payload:
            raise MalformedStatement("the statement is not in its canonical spelling")
    except (NotCanonical, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedStatement(f"not a {kind.__name__}: {error}") from error
    return statement
