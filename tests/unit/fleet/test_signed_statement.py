import pytest

from palyra.fleet.domain.signed_statement import (
    MalformedStatement,
    SignedStatement,
    Statement,
    open_statement,
    sign_statement,
)
from palyra.fleet.limits import MAX_STATEMENT_BYTES
from palyra.signing.dsse import BadSignature, pae
from palyra.signing.p256 import P256Signer

KEY = P256Signer.generate()
TYPE = "application/vnd.palyra.test.v1+json"


class Note(Statement, frozen=True, kw_only=True, forbid_unknown_fields=True):
    statement_type = TYPE
    text: str
    number: int = 0


class OtherNote(Note, frozen=True, kw_only=True):
    statement_type = "application/other"


def signed(payload: bytes, statement_type: str = TYPE) -> SignedStatement:
    return SignedStatement(payload, KEY.sign(pae(statement_type, payload)))


def test_what_was_signed_is_what_is_read() -> None:
    note = Note(text="ü", number=2)
    assert open_statement(Note, sign_statement(note, KEY), KEY.verifier()) == note


def test_another_key_another_type_or_another_payload_is_refused() -> None:
    statement = sign_statement(Note(text="a"), KEY)
    for kind, said, key in (
        (Note, statement, P256Signer.generate()),
        (OtherNote, statement, KEY),
        (Note, SignedStatement(statement.payload + b" ", statement.signature), KEY),
    ):
        with pytest.raises(BadSignature):
            open_statement(kind, said, key.verifier())


@pytest.mark.promise("P-limits")
@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b'{"number":0}',
        b'{"number":0,"text":"a","more":1}',
        b'{"number":0, "text":"a"}',
        b'{"text":"a","number":0}',
        b'{"text":"a"}',
        b'{"number":0,"text":"a","text":"b"}',
        b'{"number":1.0,"text":"a"}',
        b"\xff",
        b" " * (MAX_STATEMENT_BYTES + 1),
    ],
)
def test_a_signed_document_with_another_spelling_or_shape_is_refused(payload: bytes) -> None:
    with pytest.raises(MalformedStatement):
        open_statement(Note, signed(payload), KEY.verifier())
