"""Backups of a daemon at work, and the way back from them."""

import threading
from pathlib import Path

import pytest

from fakes.daemon import Daemon, Place
from fakes.eventually import eventually_sync


def place_at(root: Path) -> Place:
    return Place(root, '[access]\noperators = ["user:operator"]\n')


class Load:
    """Calls, one after the other on two connections, until it has to stop."""

    def __init__(self, daemon: Daemon) -> None:
        self.done: list[str] = []
        self.failed: list[Exception] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(daemon,)) for _ in range(2)]

    def _work(self, daemon: Daemon) -> None:
        with daemon.client() as client:
            while not self._over.is_set():
                try:
                    self.done.append(client.call("echo", {"text": "x" * 200}).call_id)
                except Exception as error:
                    self.failed.append(error)
                    return

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def wait_for(self, count: int) -> list[str]:
        eventually_sync(lambda: len(self.done) >= count or self.failed)
        return list(self.done)


@pytest.mark.promise("P-backup")
def test_a_backup_under_load_goes_on_elsewhere_with_every_call_that_had_ended(tmp_path: Path) -> None:
    first, second = place_at(tmp_path / "first"), place_at(tmp_path / "second")
    backups = [str(tmp_path / f"backup-{number}") for number in range(3)]
    with first.daemon() as daemon:
        with Load(daemon) as load:
            before = load.wait_for(20)
            made = [first.palyra("state", "backup", file, "--json") for file in backups]
            after = load.wait_for(len(load.done) + 5)
        assert load.failed == [] and len(after) > len(before)
        assert all(one.status == 0 for one in made), made[0].stderr
        seqs = [one.data["journal_seq"] for one in made]
        assert seqs == sorted(seqs) and seqs[0] >= 4 * len(before)
        in_use = first.palyra("state", "restore", backups[0], "--replace", "--json")
        assert (in_use.status, in_use.error["code"]) == (6, "backup.state_in_use")
    for file in backups:
        assert first.palyra("state", "verify", file, "--public-key", str(first.state / "signing.pub")).status == 0
    restored = second.palyra("state", "restore", backups[-1], "--json")
    assert restored.status == 0 and restored.data["journal"]["last_seq"] == seqs[-1]
    assert not (second.state / "workspace").exists() and not (second.state / "daemon.lock").exists()
    with second.daemon() as daemon, daemon.client() as client:
        assert {client.call_status(call_id).status for call_id in before} == {"succeeded"}
        assert client.call("echo", {"text": "on"}).status == "succeeded"
    assert second.palyra("journal", "verify").status == 0
    kinds = second.palyra("journal", "tail", "-n", "200", "--kind", "state.restored", "--json").data["events"]
    assert [one["payload"]["journal_seq"] for one in kinds] == [seqs[-1]]


@pytest.mark.promise("P-backup")
def test_what_is_there_is_kept_and_a_backup_without_keys_starts_no_daemon(tmp_path: Path) -> None:
    place = place_at(tmp_path / "one")
    assert place.palyra("call", "echo", "--input", '{"text": "first"}').status == 0
    full, bare = str(tmp_path / "full"), str(tmp_path / "bare")
    assert place.palyra("state", "backup", full).status == 0
    answer = place.palyra("state", "backup", bare, "--without-keys")
    assert "left out" in answer.stdout and "vault's key" in answer.stdout
    assert (again := place.palyra("state", "backup", full, "--json")).error["code"] == "backup.exists", again.stdout
    assert place.palyra("call", "echo", "--input", '{"text": "second"}').status == 0
    refused = place.palyra("state", "restore", full, "--json")
    assert (refused.status, refused.error["code"]) == (2, "backup.state_in_the_way")
    replaced = place.palyra("state", "restore", full, "--replace", "--json").data
    assert (Path(replaced["kept"]) / "palyra.db").exists()
    events = place.palyra("journal", "tail", "-n", "100", "--json").data["events"]
    assert sum(one["kind"] == "call.finished" for one in events) == 1
    other = place_at(tmp_path / "two")
    without = other.palyra("state", "restore", bare)
    assert without.status == 0 and "signing.key" in without.stderr
    assert other.palyra("journal", "verify").status == 0
    assert (
        other.palyra("call", "echo", "--input", '{"text": "x"}', "--json").error["code"] == "signing_key.pair_mismatch"
    )


@pytest.mark.promise("P-backup")
@pytest.mark.parametrize("damage", [100, -100])
def test_a_damaged_backup_leaves_no_trace(tmp_path: Path, damage: int) -> None:
    place = place_at(tmp_path / "one")
    assert place.palyra("call", "echo", "--input", '{"text": "first"}').status == 0
    file = tmp_path / "backup"
    assert place.palyra("state", "backup", str(file)).status == 0
    content = bytearray(file.read_bytes())
    content[damage] ^= 0xFF
    file.write_bytes(content)
    other = place_at(tmp_path / "two")
    assert other.palyra("state", "restore", str(file)).status == 1
    assert not other.state.exists() and [one.name for one in other.root.iterdir() if one.name.startswith(".")] == []
