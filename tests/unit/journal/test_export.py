import json

import pytest

from fakes.journal_harness import JournalHarness, appending
from palyra.errors import PalyraError
from palyra.journal.export import ExportReader, NotAnExport, event_line, export_lines
from palyra.journal.verify import Damage, JournalTampered, JournalVerifier, walk_journal
from palyra.store.sqlite.store import SqliteReader


@pytest.fixture
def harness(tmp_path):
    harness = JournalHarness(tmp_path)
    harness.fill(23)
    return harness


def exported(harness, **options):
    with SqliteReader(harness.database) as reader:
        _, start, items = walk_journal(reader, harness.verifiers, **options)
        return list(export_lines(items, start))


def verified(harness, lines, **options):
    reader = ExportReader(lines)
    verifier = JournalVerifier(harness.verifiers, start=reader.start, **options)
    return verifier.verify(reader.rows(lines), reader.checkpoints)


def damage(harness, lines, **options):
    with pytest.raises(JournalTampered) as caught:
        verified(harness, lines, **options)
    return caught.value.kind, caught.value.seq


def test_an_export_verifies_and_ends_sealed(harness):
    lines = exported(harness)
    report = verified(harness, lines)
    assert (report.events, report.checkpoints, report.unsealed) == (23, 3, 0)
    assert json.loads(lines[-1])["sealed_through"] == 23


def test_a_line_has_the_ocsf_fields_a_collector_looks_for(harness):
    line = json.loads(exported(harness)[1])
    assert (line["class_uid"], line["category_uid"], line["type_uid"], line["severity_id"]) == (6003, 6, 600399, 1)
    assert line["time"] == line["unmapped"]["palyra"]["time_ms"]
    assert line["metadata"]["sequence"] == 1 and line["metadata"]["product"]["name"] == "Palyra"
    assert line["unmapped"]["palyra"]["payload"] == {"number": 1}


@pytest.mark.parametrize(("first", "last"), [(1, 7), (5, 23), (11, 20), (12, 18), (21, 23)])
def test_a_stretch_verifies_and_goes_on_to_its_checkpoint(harness, first, last):
    lines = exported(harness, first_seq=first, last_seq=last)
    report = verified(harness, lines)
    covered = next(end for end in (10, 20, 23) if end >= last)
    assert (report.first_seq, report.last_seq, report.unsealed) == (first, covered, 0)


def test_every_single_changed_byte_is_found(harness):
    lines = exported(harness, first_seq=9, last_seq=12)
    text = b"".join(lines)
    for place in range(0, len(text), 11):
        changed = bytearray(text)
        changed[place] ^= 1
        with pytest.raises(PalyraError) as caught:
            verified(harness, bytes(changed).splitlines(keepends=True))
        assert caught.value.code.startswith("journal."), (place, caught.value)


def test_an_edit_outside_the_chained_fields_is_found(harness):
    lines = exported(harness)
    lines[3] = lines[3].replace(b'"activity_name":"call.finished"', b'"activity_name":"call.denied"')
    assert damage(harness, lines) == (Damage.EDITED, 3)


def test_deleted_swapped_cut_and_appended_lines(harness):
    lines = exported(harness)
    assert damage(harness, [*lines[:5], *lines[6:]]) == (Damage.MISSING, 5)
    assert damage(harness, [*lines[:5], lines[6], lines[5], *lines[7:]]) == (Damage.REORDERED, 5)
    assert damage(harness, lines[:-1]) == (Damage.TORN, 24)
    assert damage(harness, lines[:15]) == (Damage.TORN, 14)
    assert damage(harness, [*lines[:5], lines[5][:40]]) == (Damage.TORN, 5)
    assert damage(harness, [*lines, lines[5]])[0] in (Damage.TORN, Damage.FORKED)
    assert damage(harness, [*lines, b"\n"])[0] in (Damage.TORN, Damage.FORKED)
    assert damage(harness, [*lines[:5], b"not json\n", *lines[5:]]) == (Damage.EDITED, 5)


def test_a_shorter_export_with_a_new_ending_falls_to_a_kept_checkpoint(harness):
    whole, shorter = exported(harness), exported(harness, last_seq=12)
    kept = ExportReader(whole).checkpoints[-1]
    verified(harness, shorter)
    assert damage(harness, shorter, anchors=[kept]) == (Damage.TRUNCATED, 21)


def test_a_payload_cannot_add_lines(harness):
    store = harness.open()
    store.transact_blocking(appending(note='x\n{"first_seq":1,"format":"palyra.journal.checkpoint/1"}\n'))
    store.close()
    lines = exported(harness)
    assert all(line.count(b"\n") == 1 for line in lines)
    assert verified(harness, lines).events == 24


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [b"{}\n"],
        [b"junk"],
        [b'{"format":"palyra.journal.export/9","first_seq":1,"prev_hash":""}\n'],
        [b'{"format":"palyra.journal.export/1","first_seq":1,"prev_hash":"zz"}\n'],
        [b'{"format":"palyra.journal.export/\xff","first_seq":1,"prev_hash":""}\n'],
        [b'{"format":' + b"[" * 100_000],
    ],
)
def test_other_files_are_refused(lines):
    with pytest.raises(NotAnExport):
        ExportReader(lines)


def test_a_line_is_a_function_of_its_event(harness):
    with SqliteReader(harness.database) as reader:
        assert event_line(reader.event(1)) + b"\n" == exported(harness)[1]
