import msgspec
import pytest

from palyra.fleet.domain.signed_statement import MalformedStatement, SignedStatement, open_statement, sign_statement
from palyra.fleet.limits import MAX_STATEMENT_BYTES
from palyra.signing.dsse import BadSignature, pae
from palyra.signing.p256 import P256Signer

KEY = P256Signer.generate()
TYPE = "application/vnd.palyra.test.v1+json"


class Note(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: str
    number: int = 0


def signed(payload: bytes, statement_type: str = TYPE) -> SignedStatement:
    return SignedStatement(payload, KEY.sign(pae(statement_type, payload)))


def test_what_was_signed_is_what_is_read() -> None:
    note = Note(text="ü", number=2)
    assert open_statement(TYPE, Note, sign_statement(TYPE, note, KEY), KEY.verifier()) == note


def test_another_key_another_type_or_another_payload_is_refused() -> None:
    statement = sign_statement(TYPE, Note(text="a"), KEY)
    for kind, said, key in (
        (TYPE, statement, P256Signer.generate()),
        ("application/other", statement, KEY),
        (TYPE, SignedStatement(statement.payload + b" ", statement.signature), KEY),
    ):
        with pytest.raises(BadSignature):
            open_statement(kind, Note, said, key.verifier())


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
        open_statement(TYPE, Note, signed(payload), KEY.verifier())
