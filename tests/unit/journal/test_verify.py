"""The verifier over values alone; tests/security does the same to a real database."""

import pytest

from palyra.journal.chain import GENESIS_HASH, event_hash
from palyra.journal.checkpoint import make_checkpoint
from palyra.journal.verify import Damage, JournalTampered, JournalVerifier, Start
from palyra.signing.ed25519 import Ed25519Signer


def chained(seq, prev_hash, payload=b"{}"):
    fields = (seq, b"id%d" % seq, 5, b"kind", b"actor", b"", b"", b"", payload, prev_hash)
    return (*fields, event_hash(*fields))


@pytest.fixture(scope="module")
def signer():
    return Ed25519Signer.generate()


class Journal:
    """23 events, sealed at 10 and 20."""

    def __init__(self, signer):
        self.signer = signer
        self.rows, head = [], GENESIS_HASH
        for seq in range(1, 24):
            self.rows.append(chained(seq, head))
            head = self.rows[-1][10]
        self.checkpoints = []
        for first in (0, 10):
            previous = self.checkpoints[-1] if self.checkpoints else None
            hashes = [row[10] for row in self.rows[first : first + 10]]
            self.checkpoints.append(make_checkpoint(previous, hashes, time_ms=5, signer=signer))

    def verify(self, **options):
        return JournalVerifier([self.signer.verifier()], **options).verify(self.rows, self.checkpoints)

    def damage(self, **options):
        with pytest.raises(JournalTampered) as caught:
            self.verify(**options)
        assert caught.value.details == {"seq": caught.value.seq, "kind": caught.value.kind.value}
        return caught.value.kind, caught.value.seq


@pytest.fixture
def journal(signer):
    return Journal(signer)


def test_a_sound_journal_is_reported(journal):
    report = journal.verify(anchors=journal.checkpoints)
    assert (report.events, report.last_seq, report.checkpoints, report.sealed_through) == (23, 23, 2, 20)
    assert (report.unsealed, report.anchors, report.key_ids) == (3, 2, (journal.signer.key_id,))
    assert report.head_hash == journal.rows[-1][10].hex()


def test_an_empty_journal_is_sound(signer):
    report = JournalVerifier([signer.verifier()]).verify([], [])
    assert (report.events, report.last_seq, report.head_hash) == (0, 0, GENESIS_HASH.hex())


@pytest.mark.parametrize("place", range(11))
@pytest.mark.parametrize("index", [0, 9, 14, 21])
def test_an_edit_of_any_field_is_found_at_its_event(journal, place, index):
    row = list(journal.rows[index])
    row[place] = row[place] + 100 if isinstance(row[place], int) else row[place] + b"!"
    journal.rows[index] = tuple(row)
    kind, seq = journal.damage()
    assert seq == index + 1
    assert kind in (Damage.MISSING, Damage.EDITED)


@pytest.mark.parametrize("value", [None, "text", 1.5, -1, 2**70])
@pytest.mark.parametrize("place", [0, 2, 8, 9, 10])
def test_values_of_other_types_are_damage_and_not_a_crash(journal, place, value):
    row = list(journal.rows[4])
    row[place] = value
    journal.rows[4] = tuple(row)
    assert journal.damage()[1] in (-1, 5)


def test_an_edited_and_rehashed_event_is_called_replaced(journal):
    journal.rows[14] = chained(15, journal.rows[14][9], b'{"forged":1}')
    assert journal.damage() == (Damage.REPLACED, 15)


def test_a_rehashed_tail_contradicts_its_checkpoint(journal):
    head = journal.rows[13][10]
    for index in range(14, 23):
        journal.rows[index] = chained(index + 1, head, b'{"forged":1}')
        head = journal.rows[index][10]
    assert journal.damage() == (Damage.REWRITTEN, 11)


def test_a_deleted_middle(journal):
    del journal.rows[14]
    assert journal.damage() == (Damage.MISSING, 15)


def test_a_deleted_beginning(journal):
    del journal.rows[:4]
    assert journal.damage() == (Damage.MISSING, 1)


def test_a_cut_tail_against_the_stored_checkpoints(journal):
    del journal.rows[15:]
    assert journal.damage() == (Damage.TRUNCATED, 16)


def test_a_cut_tail_with_its_checkpoint_against_a_kept_one(journal):
    kept = journal.checkpoints.pop()
    del journal.rows[15:]
    journal.verify()
    assert journal.damage(anchors=[kept]) == (Damage.TRUNCATED, 16)


def test_a_removed_newest_checkpoint_against_a_kept_one(journal):
    kept = journal.checkpoints.pop()
    assert journal.damage(anchors=[kept]) == (Damage.CHECKPOINT, 11)


def test_swapped_rows_in_file_order(journal):
    journal.rows[14], journal.rows[17] = journal.rows[17], journal.rows[14]
    assert journal.damage() == (Damage.REORDERED, 15)


@pytest.mark.parametrize("other", [15, 17, 20])
def test_swapped_contents_under_right_numbers(journal, other):
    first, second = journal.rows[14], journal.rows[other]
    journal.rows[14], journal.rows[other] = (15, *second[1:]), (other + 1, *first[1:])
    assert journal.damage() == (Damage.REORDERED, 15)


def test_a_second_event_with_the_same_number(journal):
    journal.rows.insert(22, journal.rows[21])
    assert journal.damage() == (Damage.FORKED, 22)


def test_a_second_head_on_an_older_event(journal):
    journal.rows.append(chained(24, journal.rows[20][10]))
    assert journal.damage() == (Damage.FORKED, 24)


def test_a_torn_last_event(journal):
    row = journal.rows[-1]
    journal.rows[-1] = (*row[:8], row[8][:1], *row[9:])
    assert journal.damage() == (Damage.TORN, 23)


def test_checkpoints_out_of_order_missing_or_forged(journal, signer):
    journal.checkpoints.reverse()
    assert journal.damage()[0] is Damage.CHECKPOINT
    journal.checkpoints.reverse()
    first = journal.checkpoints.pop(0)
    assert journal.damage()[0] is Damage.CHECKPOINT
    forged = make_checkpoint(None, [row[10] for row in journal.rows[:10]], time_ms=5, signer=Ed25519Signer.generate())
    journal.checkpoints = [forged]
    assert journal.damage() == (Damage.CHECKPOINT, 10)
    journal.checkpoints = [first]
    journal.verify()


def test_a_kept_checkpoint_of_another_history_is_a_fork(journal, signer):
    other = make_checkpoint(None, [b"x" * 32] * 10, time_ms=5, signer=signer)
    assert journal.damage(anchors=[journal.checkpoints[0], other]) == (Damage.FORKED, 1)


def test_a_stretch_starts_at_its_basis_or_between_checkpoints(journal):
    checkpoints, rows = journal.checkpoints, journal.rows
    journal.rows, journal.checkpoints = rows[10:], checkpoints[1:]
    start = Start(seq=11, prev_hash=rows[9][10], basis=checkpoints[0])
    assert journal.verify(start=start, anchors=checkpoints).anchors == 2
    journal.rows = rows[14:]
    assert journal.verify(start=Start(seq=15, prev_hash=rows[13][10], basis=checkpoints[0])).checkpoints == 1
    assert journal.verify(start=Start(seq=15, prev_hash=rows[13][10])).events == 9
    assert journal.damage(start=Start(seq=15, prev_hash=b"x" * 32))[1] == 15


def test_a_stretch_must_continue_its_basis(journal):
    journal.rows = journal.rows[10:]
    basis = journal.checkpoints.pop(0)
    assert journal.damage(start=Start(seq=11, prev_hash=b"x" * 32, basis=basis)) == (Damage.FORKED, 11)


def test_there_is_no_report_before_the_end(signer):
    with pytest.raises(RuntimeError):
        _ = JournalVerifier([signer.verifier()]).report
