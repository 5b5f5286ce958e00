import json
import threading

import pytest
from click.testing import CliRunner

from fakes.journal_harness import JournalHarness, appending
from palyra.cli.main import root, run
from palyra.clock import SystemClock


@pytest.fixture
def harness(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    harness = JournalHarness(folder)
    store = harness.open(checkpoint_events=10)
    for number in range(1, 24):
        kind = "call.started" if number % 2 else "call.finished"
        store.transact_blocking(appending(kind=kind, run=f"R{number % 3}", call=f"C{number}", number=number))
    store.close()
    return harness


def palyra(harness, *arguments):
    return CliRunner().invoke(root, ["--state-dir", str(harness.folder), "journal", *map(str, arguments)])


def data(harness, *arguments):
    result = palyra(harness, *arguments, "--json")
    assert result.exit_code == 0, result.exception
    return json.loads(result.stdout)["data"]


def refusal(harness, capsys, *arguments):
    """Through the program's own ending, as a person or a script sees it."""
    capsys.readouterr()
    status = run(["--state-dir", str(harness.folder), "journal", *map(str, arguments), "--json"])
    return status, json.loads(capsys.readouterr().out)["error"]


def test_tail_shows_the_newest_in_order_and_filters(harness):
    assert [event["seq"] for event in data(harness, "tail", "-n", 3)["events"]] == [21, 22, 23]
    assert len(data(harness, "tail")["events"]) == 20
    filtered = data(harness, "tail", "--run", "R1", "--kind", "call.finished", "-n", 2)["events"]
    assert [event["seq"] for event in filtered] == [16, 22]
    assert [event["seq"] for event in data(harness, "tail", "--call", "C7")["events"]] == [7]
    lines = palyra(harness, "tail", "-n", 2).stdout.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["22", "23"]
    assert lines[1].endswith('{"number":23}') and "call=C23" in lines[1]


def test_show_finds_by_number_and_by_id(harness):
    event = data(harness, "show", 7)
    assert event["payload"] == {"number": 7} and event["time"].endswith("Z") and len(event["hash"]) == 64
    assert data(harness, "show", event["id"]) == event


def test_what_is_not_there_has_a_code(harness, capsys):
    assert refusal(harness, capsys, "show", 99)[1]["code"] == "journal.no_such_event"
    assert refusal(harness, capsys, "show", "nonsense")[1]["code"] == "id.malformed"
    assert refusal(harness, capsys, "verify", "missing.jsonl")[1]["code"] == "journal.unreadable_file"
    assert refusal(harness, capsys, "verify", "--checkpoint", "missing")[1]["code"] == "journal.unreadable_file"
    assert refusal(harness, capsys, "verify", "--public-key", "missing")[1]["code"] == "signing_key.unavailable"
    assert refusal(harness, capsys, "tail", "--follow")[0] == 2
    assert refusal(harness, capsys, "export")[0] == 2


def test_no_journal_is_not_available(tmp_path, capsys):
    harness = JournalHarness(tmp_path)
    status, error = refusal(harness, capsys, "tail")
    assert (status, error["code"]) == (6, "journal.cannot_open")
    harness.fill(0)
    status, error = refusal(harness, capsys, "checkpoint")
    assert (status, error["code"]) == (6, "journal.no_checkpoint")
    assert palyra(harness, "tail").stdout == ""
    assert "empty" in palyra(harness, "verify").stdout


def test_verify_reports_and_compares_with_the_copy_beside(harness):
    report = data(harness, "verify")
    assert (report["events"], report["checkpoints"], report["anchors"], report["unsealed"]) == (23, 3, 1, 0)
    assert "sound: 23 events" in palyra(harness, "verify").stdout
    (harness.folder / "checkpoint.json").unlink()
    result = palyra(harness, "verify")
    assert result.exit_code == 0 and "missing" in result.stderr


def test_a_young_journal_has_no_checkpoint_yet(tmp_path):
    folder = tmp_path / "young"
    folder.mkdir(mode=0o700)
    harness = JournalHarness(folder)
    harness.clock.now = SystemClock().now_ms()
    store = harness.open(checkpoint_events=10)
    store.transact_blocking(appending(kind="call.started", run="R", call="C", number=1))
    assert "checkpoints: none yet; 1 events not sealed yet" in palyra(harness, "verify").stdout
    store.close()


def test_verify_without_the_public_key_does_not_pass(harness, capsys):
    (harness.folder / "signing.pub").unlink()
    status, error = refusal(harness, capsys, "verify")
    assert (status, error["code"]) == (6, "signing_key.unavailable")


def test_verify_with_another_public_key_does_not_pass(harness, capsys, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    JournalHarness(other)
    status, error = refusal(harness, capsys, "verify", "--public-key", other / "signing.pub")
    assert (status, error["code"], error["details"]["kind"]) == (1, "journal.tampered", "checkpoint")


@pytest.mark.promise("P-evidence")
def test_an_export_is_verified_with_only_the_public_key(harness, tmp_path, capsys):
    out, key, kept = tmp_path / "e.jsonl", tmp_path / "key.pub", tmp_path / "kept.json"
    assert data(harness, "export", "--out", out)["events"] == 23
    assert out.stat().st_mode & 0o777 == 0o600
    data(harness, "checkpoint", "--out", kept)
    key.write_bytes((harness.folder / "signing.pub").read_bytes())
    elsewhere = JournalHarness(tmp_path)
    report = data(elsewhere, "verify", "--public-key", key, "--checkpoint", kept, out)
    assert (report["events"], report["anchors"]) == (23, 1)
    lines = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join([*lines[:4], *lines[5:]]))
    status, error = refusal(elsewhere, capsys, "verify", "--public-key", key, out)
    assert (status, error["details"]) == (1, {"seq": 4, "kind": "missing"})


def test_an_export_goes_to_standard_output_in_parts(harness, tmp_path):
    result = palyra(harness, "export", "--from", 5, "--to", 9)
    assert len(result.stdout_bytes.splitlines()) == 9, "header, events 5 to 10, their checkpoint, trailer"
    (tmp_path / "part.jsonl").write_bytes(result.stdout_bytes)
    assert data(harness, "verify", tmp_path / "part.jsonl")["first_seq"] == 5


def test_a_damaged_journal_is_not_exported(harness, tmp_path, capsys):
    import sqlite3

    connection = sqlite3.connect(harness.database, isolation_level=None)
    connection.execute("DROP TRIGGER events_no_update")
    connection.execute("UPDATE events SET actor = 'mallory' WHERE seq = 20")
    connection.close()
    status, error = refusal(harness, capsys, "export", "--out", tmp_path / "e.jsonl")
    assert (status, error["details"]) == (1, {"seq": 20, "kind": "edited"})
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_the_newest_checkpoint_is_printed(harness):
    assert data(harness, "checkpoint")["last_seq"] == 23
    assert json.loads(palyra(harness, "checkpoint").stdout)["format"] == "palyra.journal.checkpoint/1"


@pytest.mark.timeout(60)
def test_follow_goes_on_with_what_is_recorded(harness, monkeypatch):
    from palyra.store.sqlite.store import SqliteReader

    stop, follow = threading.Event(), SqliteReader.follow

    def stopping(reader, after, **filters):
        for event in follow(reader, after, stop=stop, **filters):
            yield event
            stop.set()

    monkeypatch.setattr(SqliteReader, "follow", stopping)
    store = harness.open()
    timer = threading.Timer(0.3, lambda: store.transact_blocking(appending(kind="call.denied")))
    timer.start()
    result = palyra(harness, "tail", "-n", 1, "--follow")
    timer.join()
    store.close()
    assert [line.split("  ")[0] for line in result.stdout.splitlines()] == ["23", "24"]
