import pytest

from fakes.journal_harness import JournalHarness, appending
from palyra.journal.checkpoint import keep_beside, load_checkpoint, make_checkpoint
from palyra.signing.ed25519 import Ed25519Signer
from palyra.store.event import InvalidEvent, NewEvent


def checkpoints():
    signer = Ed25519Signer.generate()
    first = make_checkpoint(None, [b"a" * 32], time_ms=1, signer=signer)
    return first, make_checkpoint(first, [b"b" * 32], time_ms=2, signer=signer)


def test_the_copy_moves_forward_only(tmp_path):
    first, second = checkpoints()
    path = tmp_path / "checkpoint.json"
    for checkpoint in (first, second, first):
        keep_beside(path, checkpoint)
    assert load_checkpoint(path) == second
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint.json"]


def test_a_broken_copy_is_replaced(tmp_path):
    first, _ = checkpoints()
    path = tmp_path / "checkpoint.json"
    path.write_bytes(b"{half")
    keep_beside(path, first)
    assert load_checkpoint(path) == first


def test_a_place_that_cannot_be_written_is_no_reason_to_fail(tmp_path):
    first, _ = checkpoints()
    keep_beside(tmp_path / "missing" / "checkpoint.json", first)
    assert not (tmp_path / "missing").exists()


def test_the_store_keeps_its_newest_checkpoint_beside_itself(tmp_path):
    harness = JournalHarness(tmp_path)
    store = harness.open(checkpoint_events=10)
    store.transact_blocking(appending(10))
    store.seal()
    store.transact_blocking(appending(3))
    store.close()
    assert load_checkpoint(tmp_path / "checkpoint.json").last_seq == 13


@pytest.mark.parametrize("kind", ["", "Call.finished", "call finished", "call.", ".call", "a\n", "x" * 65, "call..x"])
def test_a_kind_that_is_not_dotted_lower_case_words_is_refused(tmp_path, kind):
    store = JournalHarness(tmp_path).open()
    with pytest.raises(InvalidEvent) as caught:
        store.transact_blocking(lambda tx: tx.append(NewEvent(kind=kind, actor="a")))
    assert caught.value.code == "journal.invalid_event" and store.head()[0] == 0
    store.close()
