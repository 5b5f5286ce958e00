import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.node_state_harness import code_record, node_record, pairing_record, request_record
from palyra.nodes.domain.records import RequestId
from palyra.nodes.store.document import DamagedDocument, NodeDocument, decode, encode, encode_records
from palyra.nodes.store.port import NodeStateUnreadable


def by_id(*records):
    return {str(record.id): msgspec.structs.replace(record, id=str(record.id)) for record in records}


DOCUMENT = NodeDocument(
    revision=7,
    codes=by_id(code_record()),
    pairings=by_id(pairing_record()),
    nodes=by_id(node_record(), node_record()),
    requests=by_id(request_record()),
)
RAW = encode(DOCUMENT)


def test_a_document_comes_back_whole():
    assert decode(RAW) == DOCUMENT
    assert decode(encode(NodeDocument())) == NodeDocument()


def test_no_part_of_a_document_is_a_document():
    for length in range(len(RAW) - 1):
        with pytest.raises(DamagedDocument):
            decode(RAW[:length])


@settings(max_examples=200, deadline=None)
@given(st.integers(min_value=0, max_value=len(RAW) - 2), st.integers(min_value=1, max_value=255))
def test_a_changed_byte_anywhere_shows(at, flip):
    changed = bytearray(RAW)
    changed[at] ^= flip
    try:
        read = decode(bytes(changed))
    except (DamagedDocument, NodeStateUnreadable):
        return
    # White space between the outer fields, an escape of the same letter: the same document in another spelling.
    assert read == DOCUMENT


def test_a_newer_version_is_not_damage_and_not_touched():
    with pytest.raises(NodeStateUnreadable, match="version 2"):
        decode(RAW.replace(b'"version":1', b'"version":2'))


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b"null", b'{"format":"other","version":1}', b"\0" * 100])
def test_other_things_are_damaged(raw):
    with pytest.raises(DamagedDocument):
        decode(raw)


def test_a_record_twice_is_damage():
    record = msgspec.structs.replace(node_record(), id="same")
    raw = encode(NodeDocument(nodes={"a": record, "b": record}))
    with pytest.raises(DamagedDocument, match="one id"):
        decode(raw)


def test_typed_ids_are_stored_as_text_and_nothing_else_is_guessed_at():
    assert encode_records([RequestId("01ARZ3NDEKTSV4RRFFQ69G5FAV")]) == b'["01ARZ3NDEKTSV4RRFFQ69G5FAV"]'
    with pytest.raises(TypeError):
        encode_records([object()])
