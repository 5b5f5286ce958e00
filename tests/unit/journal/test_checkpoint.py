import json

import msgspec
import pytest

from palyra.journal.checkpoint import (
    GENESIS_CHECKPOINT,
    ForgedCheckpoint,
    InvalidCheckpoint,
    make_checkpoint,
    merkle_root,
    parse_checkpoint,
    verify_signature,
)
from palyra.signing.ed25519 import Ed25519Signer

HASHES = [bytes([number]) * 32 for number in range(1, 6)]


@pytest.fixture(scope="module")
def signer():
    return Ed25519Signer.generate()


def test_checkpoints_chain_and_seal_what_came_since_the_last(signer):
    first = make_checkpoint(None, HASHES[:3], time_ms=5, signer=signer)
    second = make_checkpoint(first, HASHES[3:], time_ms=6, signer=signer)
    assert (first.number, first.first_seq, first.last_seq, first.previous) == (1, 1, 3, GENESIS_CHECKPOINT)
    assert (second.number, second.first_seq, second.last_seq, second.previous) == (2, 4, 5, first.digest())
    assert second.root == merkle_root(HASHES[3:]) and second.head_hash == HASHES[-1]


def test_json_gives_the_checkpoint_back_and_it_verifies(signer):
    checkpoint = make_checkpoint(None, HASHES, time_ms=5, signer=signer)
    again = parse_checkpoint(checkpoint.to_json())
    assert again == checkpoint
    verify_signature(again, [signer.verifier()])


@pytest.mark.parametrize(
    ("field", "value"),
    [("number", 2), ("first_seq", 2), ("last_seq", 9), ("time_ms", 6), ("head_hash", b"x" * 32), ("root", b"x" * 32),
     ("previous", b"x" * 32), ("signature", b"x" * 64)],
)  # fmt: skip
def test_every_field_is_signed(signer, field, value):
    checkpoint = make_checkpoint(None, HASHES, time_ms=5, signer=signer)
    with pytest.raises(ForgedCheckpoint):
        verify_signature(msgspec.structs.replace(checkpoint, **{field: value}), [signer.verifier()])


def test_another_key_is_refused_also_under_the_right_name(signer):
    mallory = Ed25519Signer.generate()
    forged = make_checkpoint(None, HASHES, time_ms=5, signer=mallory)
    with pytest.raises(ForgedCheckpoint):
        verify_signature(forged, [signer.verifier()])
    with pytest.raises(ForgedCheckpoint):
        verify_signature(msgspec.structs.replace(forged, key_id=signer.key_id), [signer.verifier()])
    with pytest.raises(ForgedCheckpoint):
        verify_signature(forged, [])


@pytest.mark.parametrize(
    "change",
    [{"format": "palyra.journal.checkpoint/2"}, {"extra": 1}, {"number": 0}, {"first_seq": 9}, {"last_seq": 2**80},
     {"root": "00"}, {"root": "zz"}, {"signature": "%%"}, {"number": "1"}],
)  # fmt: skip
def test_other_shapes_are_refused(signer, change):
    document = json.loads(make_checkpoint(None, HASHES, time_ms=5, signer=signer).to_json())
    with pytest.raises(InvalidCheckpoint):
        parse_checkpoint(json.dumps({**document, **change}).encode())


def test_nothing_is_not_sealed(signer):
    with pytest.raises(InvalidCheckpoint):
        make_checkpoint(None, [], time_ms=5, signer=signer)
