"""Attacks on the journal's files, by someone who can write them, and by circumstances."""

import base64
import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from fakes.journal_harness import JournalHarness, appending
from palyra.cli.main import root
from palyra.journal.chain import event_hash
from palyra.journal.checkpoint import Checkpoint, load_checkpoint, make_checkpoint
from palyra.journal.export import export_lines
from palyra.journal.verify import (
    AnchorUnused,
    Damage,
    EventsNotProven,
    JournalTampered,
    Start,
    verify_journal,
    walk_journal,
)
from palyra.secret import Secret
from palyra.signing.ed25519 import Ed25519Signer
from palyra.store.event import NewEvent
from palyra.store.sqlite.store import SqliteReader

pytestmark = pytest.mark.promise("P-journal-tamper")

EVENTS = 35
TESTS = Path(__file__).parent.parent


@pytest.fixture
def harness(tmp_path):
    """A closed journal of 35 events with checkpoints at 10, 20, 30 and 35."""
    harness = JournalHarness(tmp_path)
    harness.fill(EVENTS)
    return harness


@contextmanager
def burglar(harness):
    """A raw connection with the triggers gone: whoever can write the file can do this."""
    connection = sqlite3.connect(harness.database, isolation_level=None)
    for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    yield connection
    connection.close()


def unsealed(harness, count=3):
    """Adds events that no checkpoint covers, as a crash leaves them."""
    with burglar(harness) as connection:
        for _ in range(count):
            seq, prev = connection.execute("SELECT seq + 1, hash FROM events ORDER BY seq DESC LIMIT 1").fetchone()
            insert(connection, seq, prev)


def insert(connection, seq, prev, payload=b'{"forged":true}'):
    fields = (seq, b"forged%d" % seq, 5, b"call.finished", b"mallory", b"", b"", b"", payload, prev)
    row = [field.decode() if index in (1, 3, 4, 5, 6, 7) else field for index, field in enumerate(fields)]
    connection.execute("INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?,?,?)", (*row, event_hash(*fields)))


def verify(harness, *anchors):
    beside = harness.folder / "checkpoint.json"
    kept = [load_checkpoint(beside)] if beside.exists() else []
    with SqliteReader(harness.database) as reader:
        return verify_journal(reader, harness.verifiers, anchors=[*anchors, *kept])


def damage(harness, *anchors):
    with pytest.raises(JournalTampered) as caught:
        verify(harness, *anchors)
    return caught.value.kind, caught.value.seq


def palyra(harness, *arguments):
    return CliRunner().invoke(root, ["--state-dir", str(harness.folder), "journal", *map(str, arguments)])


# Edits


@pytest.mark.parametrize("change", [
    "payload = CAST('{\"number\":99}' AS BLOB)", "actor = 'mallory'", "principal = 'user:root'", "kind = 'call.denied'",
    "time_ms = time_ms + 1", "id = 'other'", "run = 'r'", "call = 'c'", "hash = zeroblob(32)",
])  # fmt: skip
@pytest.mark.parametrize("seq", [1, 17, EVENTS])
def test_an_edit_of_any_column_is_named(harness, change, seq):
    with burglar(harness) as connection:
        connection.execute(f"UPDATE events SET {change} WHERE seq = ?", (seq,))
    assert damage(harness) == (Damage.EDITED, seq)


def test_an_edit_with_a_recomputed_hash_is_named(harness):
    with burglar(harness) as connection:
        (prev,) = connection.execute("SELECT prev_hash FROM events WHERE seq = 17").fetchone()
        connection.execute("DELETE FROM events WHERE seq = 17")
        insert(connection, 17, prev)
    assert damage(harness) == (Damage.REPLACED, 17)


def test_a_whole_rewritten_history_contradicts_the_signatures(harness):
    with burglar(harness) as connection:
        (prev,) = connection.execute("SELECT hash FROM events WHERE seq = 12").fetchone()
        connection.execute("DELETE FROM events WHERE seq > 12")
        for seq in range(13, EVENTS + 1):
            insert(connection, seq, prev)
            (prev,) = connection.execute("SELECT hash FROM events WHERE seq = ?", (seq,)).fetchone()
    assert damage(harness) == (Damage.REWRITTEN, 11)


def test_new_checkpoints_for_a_rewritten_history_need_the_key(harness):
    mallory = Ed25519Signer.generate()
    with burglar(harness) as connection:
        hashes = [row[0] for row in connection.execute("SELECT hash FROM events ORDER BY seq")]
        forged = make_checkpoint(None, hashes, time_ms=5, signer=mallory)
        connection.execute("DELETE FROM checkpoints")
        connection.execute("INSERT INTO checkpoints VALUES (1, ?, ?)", (EVENTS, forged.to_json()))
    (harness.folder / "checkpoint.json").unlink()
    assert damage(harness)[0] is Damage.CHECKPOINT


def test_text_that_is_not_text_is_damage_and_not_a_crash(harness):
    with burglar(harness) as connection:
        connection.execute("UPDATE events SET actor = CAST(x'fffe' AS TEXT) WHERE seq = 9")
    assert damage(harness) == (Damage.EDITED, 9)
    assert palyra(harness, "show", "8").exit_code == 0
    assert "ff" in palyra(harness, "show", "9").output


# Deletions, cuts, swaps, forks


def test_a_deleted_row_is_named(harness):
    with burglar(harness) as connection:
        connection.execute("DELETE FROM events WHERE seq = 17")
    assert damage(harness) == (Damage.MISSING, 17)


def test_a_deleted_row_with_the_rest_renumbered_is_named(harness):
    with burglar(harness) as connection:
        connection.execute("DELETE FROM events WHERE seq = 17")
        for seq in range(18, EVENTS + 1):
            connection.execute("UPDATE events SET seq = ? WHERE seq = ?", (seq - 1, seq))
    assert damage(harness) == (Damage.REORDERED, 17)


def test_a_cut_tail_is_named_by_the_stored_checkpoint(harness):
    with burglar(harness) as connection:
        connection.execute("DELETE FROM events WHERE seq > 22")
    assert damage(harness) == (Damage.TRUNCATED, 23)


def test_a_cut_tail_with_its_checkpoints_is_named_by_the_copy_beside(harness):
    with burglar(harness) as connection:
        connection.execute("DELETE FROM events WHERE seq > 22")
        connection.execute("DELETE FROM checkpoints WHERE last_seq > 22")
    assert damage(harness) == (Damage.TRUNCATED, 23)


def test_a_cut_tail_with_an_older_copy_beside_is_named_by_an_auditors_checkpoint(harness):
    auditors = load_checkpoint(harness.folder / "checkpoint.json")
    with burglar(harness) as connection:
        connection.execute("DELETE FROM events WHERE seq > 20")
        connection.execute("DELETE FROM checkpoints WHERE last_seq > 20")
        (older,) = connection.execute("SELECT document FROM checkpoints ORDER BY number DESC LIMIT 1").fetchone()
    (harness.folder / "checkpoint.json").write_bytes(older)
    assert verify(harness).events == 20, "nothing on this machine can show it"
    assert damage(harness, auditors) == (Damage.TRUNCATED, 21)


def test_deleted_checkpoints_are_named(harness):
    with burglar(harness) as connection:
        connection.execute("DELETE FROM checkpoints WHERE number = 2")
    assert damage(harness)[0] is Damage.CHECKPOINT
    with burglar(harness) as connection:
        connection.execute("DELETE FROM checkpoints")
    assert damage(harness)[0] is Damage.CHECKPOINT


@pytest.mark.parametrize("other", [13, 20, EVENTS])
def test_swapped_rows_are_named(harness, other):
    with burglar(harness) as connection:
        for old, new in ((12, -1), (other, 12), (-1, other)):
            connection.execute("UPDATE events SET seq = ? WHERE seq = ?", (new, old))
    assert damage(harness) == (Damage.REORDERED, 12)


def test_swapped_payloads_are_named(harness):
    with burglar(harness) as connection:
        payloads = dict(connection.execute("SELECT seq, payload FROM events WHERE seq IN (12, 13)"))
        for seq, other in ((12, 13), (13, 12)):
            connection.execute("UPDATE events SET payload = ? WHERE seq = ?", (payloads[other], seq))
    assert damage(harness) == (Damage.EDITED, 12)


def test_a_second_head_is_named(harness):
    unsealed(harness)
    assert verify(harness).unsealed == 3
    with burglar(harness) as connection:
        (prev,) = connection.execute("SELECT prev_hash FROM events WHERE seq = 38").fetchone()
        insert(connection, 39, prev)
    assert damage(harness) == (Damage.FORKED, 39)


def test_a_second_event_with_the_same_number_is_named(harness):
    with burglar(harness) as connection:
        connection.execute("CREATE TABLE copy AS SELECT * FROM events")
        connection.execute("INSERT INTO copy SELECT * FROM events WHERE seq = 17")
        connection.execute("DROP TABLE events")
        connection.execute("ALTER TABLE copy RENAME TO events")
    assert damage(harness) == (Damage.FORKED, 17)


def test_a_torn_last_write_is_named(harness):
    unsealed(harness)
    with burglar(harness) as connection:
        connection.execute("UPDATE events SET payload = substr(payload, 1, 4) WHERE seq = 38")
    assert damage(harness) == (Damage.TORN, 38)


def test_a_damaged_page_is_named_and_not_a_crash(harness):
    with burglar(harness) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        page = connection.execute("SELECT max(pageno) FROM dbstat WHERE name = 'events'").fetchone()[0]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    with harness.database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(os.urandom(64))
    with pytest.raises(JournalTampered):
        verify(harness)


def test_a_file_of_another_kind_is_refused(harness):
    harness.database.write_bytes(b"#!/bin/sh\n" * 1000)
    for suffix in ("-wal", "-shm"):
        harness.database.with_name(harness.database.name + suffix).unlink(missing_ok=True)
    result = palyra(harness, "verify")
    assert result.exception is not None and result.exception.code == "journal.database_damaged"


def test_the_triggers_refuse_honest_programs(harness):
    connection = sqlite3.connect(harness.database, isolation_level=None)
    for sql in ("UPDATE events SET actor = 'x'", "DELETE FROM events", "DELETE FROM checkpoints",
                "UPDATE checkpoints SET document = x''"):  # fmt: skip
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(sql)
    connection.close()


def test_a_daemon_that_goes_on_after_a_cut_does_not_hide_it(harness):
    auditors = load_checkpoint(harness.folder / "checkpoint.json")
    with burglar(harness) as connection:
        connection.execute("DELETE FROM events WHERE seq > 25")
        connection.execute("DELETE FROM checkpoints WHERE last_seq > 25")
    store = harness.open(checkpoint_events=10)
    store.transact_blocking(appending(40))
    store.close()
    assert damage(harness, auditors)[0] is Damage.CHECKPOINT
    store = harness.open(checkpoint_events=10)
    store.transact_blocking(appending(10))
    store.close()
    assert damage(harness, auditors) == (Damage.FORKED, 31), "its own checkpoint of the same number is another one"


# Several processes, crashes, full disks


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "fakes.journal_process", *map(str, arguments)],
        cwd=TESTS, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(TESTS)},
    )  # fmt: skip


@pytest.mark.promise("P-journal-durable")
def test_two_processes_keep_one_chain(tmp_path):
    harness = JournalHarness(tmp_path)
    writers = [start("write", tmp_path, 900) for _ in range(2)]
    outputs = [writer.communicate(timeout=100)[0].split() for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0]
    numbers = sorted(int(line) for output in outputs for line in output)
    assert len(set(numbers)) == len(numbers) == 600
    report = verify(harness)
    assert (report.events, report.unsealed) == (1800, 0)


@pytest.mark.promise("P-journal-durable")
def test_a_killed_writer_leaves_a_sound_journal_with_all_it_promised(tmp_path):
    harness = JournalHarness(tmp_path)
    promised = 0
    for _ in range(3):
        writer = start("write", tmp_path, 1_000_000)
        for _ in range(40):
            promised = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        rest = writer.communicate(timeout=60)[0].split("\n")[:-1]
        promised = int(rest[-1]) if rest else promised
        report = verify(harness)
        assert report.events >= promised
        assert report.events % 3 == 0, "a unit is there whole or not at all"
    store = harness.open()
    assert store.transact_blocking(appending()) > promised
    store.close()
    assert verify(harness).unsealed == 0


@pytest.mark.promise("P-journal-durable")
def test_a_full_disk_refuses_loses_nothing_and_recovers(tmp_path):
    """On a real small file system, in a mount namespace of its own."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    done = subprocess.run(
        ["unshare", *user, "--mount", sys.executable, "-m", "fakes.journal_process", "fill_disk", str(tmp_path)],
        cwd=TESTS, capture_output=True, text=True, timeout=100, env={**os.environ, "PYTHONPATH": str(TESTS)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen.pop("degraded_after"), seen
    assert seen == {
        "degraded_at_first": None,
        "code": "journal.disk_full",
        "nothing_lost": True,
        "ballast_kept": True,
        "degraded_while_full": "the disk is full",
        "verified_full": True,
        "essential_recorded": True,
        "refused_while_degraded": "journal.disk_full",
        "nothing_more_was_written": True,
        "refused_within_the_second": "journal.disk_full",
        "works_again": True,
        "verified_after": True,
    }


def test_a_locked_database_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("palyra.store.sqlite.connection.BUSY_TIMEOUT_SECONDS", 0.05)
    harness = JournalHarness(tmp_path)
    store = harness.open()
    holder = sqlite3.connect(harness.database, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(Exception, match="locked") as caught:
        store.transact_blocking(appending())
    assert caught.value.code == "journal.busy"
    holder.execute("ROLLBACK")
    holder.close()
    assert store.transact_blocking(appending()) == 1
    store.close()


def test_a_hundred_thousand_events_verify(tmp_path):
    harness = JournalHarness(tmp_path)
    store = harness.open(checkpoint_events=1000)
    for _ in range(100):
        store.transact_blocking(appending(1000, tool="fs.read", status="succeeded"))
    store.close()
    report = verify(harness)
    assert (report.events, report.checkpoints, report.sealed_through) == (100_000, 100, 100_000)


# Exports that somebody made up


def made_up(folder, *, first_seq=1, prev_hash=None):
    """Return the lines of an export whose events nobody's daemon recorded. The chain in it is sound."""
    folder.mkdir(mode=0o700)
    forger = JournalHarness(folder)
    store = forger.open(checkpoint_events=1_000)
    for number in range(8):
        store.transact_blocking(appending(kind="call.finished", principal="agent:victim", number=number))
    with SqliteReader(forger.database) as reader:
        _, start, items = walk_journal(reader, forger.verifiers)
        rows = [item for item in items if not isinstance(item, Checkpoint)]
    store.close()
    head, shifted = prev_hash or start.prev_hash, []
    for place, row in enumerate(rows):
        fields = (first_seq + place, *row[1:9], head)
        head = event_hash(*fields)
        shifted.append((*fields, head))
    return b"".join(export_lines(shifted, Start(seq=first_seq, prev_hash=prev_hash or start.prev_hash)))


@pytest.mark.parametrize("first_seq", [1, 36, 1_000])
@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_an_export_that_no_checkpoint_covers_is_not_called_sound(harness, tmp_path, capsys, first_seq, with_checkpoint):
    kept = tmp_path / "kept.json"
    assert palyra(harness, "checkpoint", "--out", kept).exit_code == 0
    forged = tmp_path / "forged.jsonl"
    prev_hash = None if first_seq == 1 else bytes(32)
    forged.write_bytes(made_up(tmp_path / "forger", first_seq=first_seq, prev_hash=prev_hash))
    given = ("--checkpoint", kept) if with_checkpoint else ()
    key = ("--public-key", harness.folder / "signing.pub")
    result = palyra(harness, "verify", forged, *given, *key)
    assert isinstance(result.exception, EventsNotProven | AnchorUnused | JournalTampered), result.output
    assert "sound" not in result.output


def test_a_kept_checkpoint_that_says_nothing_about_the_events_fails(harness, tmp_path):
    kept = tmp_path / "kept.json"
    with SqliteReader(harness.database) as reader:
        walk = walk_journal(reader, harness.verifiers)[2]
        first = next(item for item in walk if isinstance(item, Checkpoint))
    kept.write_bytes(first.to_json())
    part = tmp_path / "part.jsonl"
    assert palyra(harness, "export", "--from", 25, "--out", part).exit_code == 0
    assert palyra(harness, "verify", part).exit_code == 0
    assert isinstance(palyra(harness, "verify", part, "--checkpoint", kept).exception, AnchorUnused)


def test_a_tail_whose_checkpoint_is_long_overdue_is_not_called_sound(harness):
    unsealed(harness)
    assert isinstance(palyra(harness, "verify").exception, EventsNotProven)


# What the journal shows and keeps

HOSTILE = "x\n36  2026-01-01T00:00:00.000Z  call.finished  daemon\r\x1b[2J\x9b1m\u2028\u202e\x00\u200b{}"


@pytest.mark.promise("P-journal-clean")
@pytest.mark.parametrize("field", ["actor", "principal", "run", "call", "payload", "key"])
def test_no_field_can_forge_a_line_or_steer_the_terminal(harness, field):
    fields = {"actor": "a", "payload": {}}
    fields |= {"payload": {"v": HOSTILE}} if field == "payload" else {}
    fields |= {"payload": {HOSTILE: 1}} if field == "key" else {}
    fields |= {field: HOSTILE} if field not in ("payload", "key") else {}
    store = harness.open()
    store.transact_blocking(lambda transaction: transaction.append(NewEvent(kind="call.finished", **fields)))
    store.close()
    result = palyra(harness, "tail", "-n", "2")
    assert result.exit_code == 0, result.exception
    lines = result.output.split("\n")
    assert [line.split("  ")[0] for line in lines if line] == ["35", "36"]
    assert not set(result.output) & set("\r\x1b\x9b\u2028\u202e\x00\u200b")
    shown = palyra(harness, "show", "36").output
    assert shown.isascii() and "\x1b" not in shown


@pytest.mark.promise("P-journal-clean")
def test_secrets_never_reach_the_disk(tmp_path):
    harness = JournalHarness(tmp_path)
    known, named, wrapped = "kn0wn-Vault-Value!42", "under-a-named-key", "in-a-secret-type"
    harness.redactor.register(Secret(known))
    store = harness.open()
    basic = base64.b64encode(f"bob:{known}".encode()).decode()

    def work(transaction):
        payload = {
            "command": f"curl -u bob:{known} https://h/?k={known.replace('!', '%21')}",
            "headers": {"Authorization": f"Basic {named}", "x": f"Basic {basic}"},
            "password": named, "n": [Secret(wrapped)], known: 1, "long": "y" * 500 + known + "z" * 500,
        }  # fmt: skip
        transaction.append(
            NewEvent(kind="call.requested", actor=known, principal=known, run=known, call=known, payload=payload)
        )
        transaction.append(NewEvent(kind="call.requested", actor="a", payload={"header": basic}))

    store.transact_blocking(work)
    files = [path for path in tmp_path.iterdir() if path.is_file() and not path.name.startswith("signing")]
    assert {"palyra.db", "palyra.db-wal"} <= {path.name for path in files}
    spellings = [
        known,
        named,
        wrapped,
        base64.b64encode(known.encode())[4:-4].decode(),
        basic[8:-4],
        known.encode().hex(),
    ]
    for path in files:
        raw = path.read_bytes()
        assert [secret for secret in spellings if secret.encode() in raw] == [], path.name
    store.close()
    assert known.encode() not in harness.database.read_bytes()
    assert verify(harness).events == 2
