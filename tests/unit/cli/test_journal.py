import json
import threading

import pytest
from click.testing import CliRunner

from fakes.journal_house import JournalHouse, appending
from palyra.cli.main import root, run


@pytest.fixture
def house(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    house = JournalHouse(folder)
    store = house.open(checkpoint_events=10)
    for number in range(1, 24):
        kind = "call.started" if number % 2 else "call.finished"
        store.transact_blocking(appending(kind=kind, run=f"R{number % 3}", call=f"C{number}", number=number))
    store.close()
    return house


def palyra(house, *arguments):
    return CliRunner().invoke(root, ["--state-dir", str(house.folder), "journal", *map(str, arguments)])


def data(house, *arguments):
    result = palyra(house, *arguments, "--json")
    assert result.exit_code == 0, result.exception
    return json.loads(result.stdout)["data"]


def refusal(house, capsys, *arguments):
    """Through the program's own ending, as a person or a script sees it."""
    capsys.readouterr()
    status = run(["--state-dir", str(house.folder), "journal", *map(str, arguments), "--json"])
    return status, json.loads(capsys.readouterr().out)["error"]


def test_tail_shows_the_newest_in_order_and_filters(house):
    assert [event["seq"] for event in data(house, "tail", "-n", 3)["events"]] == [21, 22, 23]
    assert len(data(house, "tail")["events"]) == 20
    filtered = data(house, "tail", "--run", "R1", "--kind", "call.finished", "-n", 2)["events"]
    assert [event["seq"] for event in filtered] == [16, 22]
    assert [event["seq"] for event in data(house, "tail", "--call", "C7")["events"]] == [7]
    lines = palyra(house, "tail", "-n", 2).stdout.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["22", "23"]
    assert lines[1].endswith('{"number":23}') and "call=C23" in lines[1]


def test_show_finds_by_number_and_by_id(house):
    event = data(house, "show", 7)
    assert event["payload"] == {"number": 7} and event["time"].endswith("Z") and len(event["hash"]) == 64
    assert data(house, "show", event["id"]) == event


def test_what_is_not_there_has_a_code(house, capsys):
    assert refusal(house, capsys, "show", 99)[1]["code"] == "journal.no_such_event"
    assert refusal(house, capsys, "show", "nonsense")[1]["code"] == "id.malformed"
    assert refusal(house, capsys, "verify", "missing.jsonl")[1]["code"] == "journal.unreadable_file"
    assert refusal(house, capsys, "verify", "--checkpoint", "missing")[1]["code"] == "journal.unreadable_file"
    assert refusal(house, capsys, "verify", "--public-key", "missing")[1]["code"] == "signing_key.unavailable"
    assert refusal(house, capsys, "tail", "--follow")[0] == 2
    assert refusal(house, capsys, "export")[0] == 2


def test_no_journal_is_not_available(tmp_path, capsys):
    house = JournalHouse(tmp_path)
    status, error = refusal(house, capsys, "tail")
    assert (status, error["code"]) == (6, "journal.cannot_open")
    house.fill(0)
    status, error = refusal(house, capsys, "checkpoint")
    assert (status, error["code"]) == (6, "journal.no_checkpoint")
    assert palyra(house, "tail").stdout == ""
    assert "empty" in palyra(house, "verify").stdout


def test_verify_reports_and_compares_with_the_copy_beside(house):
    report = data(house, "verify")
    assert (report["events"], report["checkpoints"], report["anchors"], report["unsealed"]) == (23, 3, 1, 0)
    assert "sound: 23 events" in palyra(house, "verify").stdout
    (house.folder / "checkpoint.json").unlink()
    result = palyra(house, "verify")
    assert result.exit_code == 0 and "missing" in result.stderr


def test_a_young_journal_has_no_checkpoint_yet(tmp_path):
    folder = tmp_path / "young"
    folder.mkdir(mode=0o700)
    house = JournalHouse(folder)
    store = house.open(checkpoint_events=10)
    store.transact_blocking(appending(kind="call.started", run="R", call="C", number=1))
    assert "checkpoints: none yet; 1 events not sealed yet" in palyra(house, "verify").stdout
    store.close()


def test_verify_without_the_public_key_does_not_pass(house, capsys):
    (house.folder / "signing.pub").unlink()
    status, error = refusal(house, capsys, "verify")
    assert (status, error["code"]) == (6, "signing_key.unavailable")


def test_verify_with_another_public_key_does_not_pass(house, capsys, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    JournalHouse(other)
    status, error = refusal(house, capsys, "verify", "--public-key", other / "signing.pub")
    assert (status, error["code"], error["details"]["kind"]) == (1, "journal.tampered", "checkpoint")


@pytest.mark.promise("P-evidence")
def test_an_export_is_verified_with_only_the_public_key(house, tmp_path, capsys):
    out, key, kept = tmp_path / "e.jsonl", tmp_path / "key.pub", tmp_path / "kept.json"
    assert data(house, "export", "--out", out)["events"] == 23
    assert out.stat().st_mode & 0o777 == 0o600
    data(house, "checkpoint", "--out", kept)
    key.write_bytes((house.folder / "signing.pub").read_bytes())
    elsewhere = JournalHouse(tmp_path)
    report = data(elsewhere, "verify", "--public-key", key, "--checkpoint", kept, out)
    assert (report["events"], report["anchors"]) == (23, 1)
    lines = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join([*lines[:4], *lines[5:]]))
    status, error = refusal(elsewhere, capsys, "verify", "--public-key", key, out)
    assert (status, error["details"]) == (1, {"seq": 4, "kind": "missing"})


def test_an_export_goes_to_standard_output_in_parts(house, tmp_path):
    result = palyra(house, "export", "--from", 5, "--to", 9)
    assert len(result.stdout_bytes.splitlines()) == 7
    (tmp_path / "part.jsonl").write_bytes(result.stdout_bytes)
    assert data(house, "verify", tmp_path / "part.jsonl")["first_seq"] == 5


def test_a_damaged_journal_is_not_exported(house, tmp_path, capsys):
    import sqlite3

    connection = sqlite3.connect(house.database, isolation_level=None)
    connection.execute("DROP TRIGGER events_no_update")
    connection.execute("UPDATE events SET actor = 'mallory' WHERE seq = 20")
    connection.close()
    status, error = refusal(house, capsys, "export", "--out", tmp_path / "e.jsonl")
    assert (status, error["details"]) == (1, {"seq": 20, "kind": "edited"})
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_the_newest_checkpoint_is_printed(house):
    assert data(house, "checkpoint")["last_seq"] == 23
    assert json.loads(palyra(house, "checkpoint").stdout)["format"] == "palyra.journal.checkpoint/1"


@pytest.mark.timeout(60)
def test_follow_goes_on_with_what_is_recorded(house, monkeypatch):
    from palyra.store.sqlite import reader as follow_module

    stop, follow = threading.Event(), follow_module.follow

    def stopping(reader, after, **filters):
        for event in follow(reader, after, stop=stop, **filters):
            yield event
            stop.set()

    monkeypatch.setattr(follow_module, "follow", stopping)
    store = house.open()
    timer = threading.Timer(0.3, lambda: store.transact_blocking(appending(kind="call.denied")))
    timer.start()
    result = palyra(house, "tail", "-n", 1, "--follow")
    timer.join()
    store.close()
    assert [line.split("  ")[0] for line in result.stdout.splitlines()] == ["23", "24"]
