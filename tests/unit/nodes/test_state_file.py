"""The file's own promises: step by step with the journal, whole or the last good copy, and it says so."""

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fakes.node_state_harness import NodeStateHarness, code_record, node_record
from palyra.nodes.store.document import decode
from palyra.nodes.store.file import BROKEN_NAME, FILE_NAME
from palyra.nodes.store.port import NodeStateUnreadable

CHILD = Path(__file__).parents[2] / "fakes" / "node_state_process.py"


@pytest.fixture
def harness(tmp_path):
    harness = NodeStateHarness(tmp_path)
    yield harness
    harness.close()


async def named(state, name, record=None):
    record = msgspec.structs.replace(record or node_record(), name=name)
    await state.transact(lambda unit: unit.nodes.put(record))
    return record


def names(state):
    return [node.name for node in state.read(lambda unit: unit.nodes.list())]


async def test_the_file_is_json_of_its_owner_and_the_one_before_is_kept(harness):
    state = await harness.state()
    first = await named(state, "first")
    await named(state, "second", first)
    for path, name in ((harness.file, "second"), (harness.backup, "first")):
        assert [node.name for node in decode(path.read_bytes()).nodes.values()] == [name]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert harness.file.stat().st_ino != harness.backup.stat().st_ino
    assert {path.name for path in harness.folder.iterdir() if path.name.startswith(".")} == set()


async def test_what_changes_nothing_writes_nothing(harness):
    state = await harness.state()
    await named(state, "one")
    before = harness.file.stat()
    await state.transact(lambda unit: unit.nodes.list())
    state.read(lambda unit: unit.nodes.list())
    assert harness.file.stat() == before


@pytest.mark.promise("P-device-recovers")
async def test_truncated_at_any_byte_it_falls_back_to_the_last_good_copy_and_says_so(harness):
    state = await harness.state()
    first = await named(state, "first")
    await named(state, "second", first)
    whole, backup = harness.file.read_bytes(), harness.backup.read_bytes()
    database = harness.stores[-1]
    ((revision, digest),) = database.read("SELECT revision, sha256 FROM node_state_file")
    recovered = 0
    # Every byte as it is read; every forty-first also through a whole start, which repairs and records.
    for length in range(len(whole) - 1):
        harness.file.write_bytes(whole[:length])
        assert names(type(state)(harness.folder, database, harness.clock)) == ["first"]
        if length % 41:
            continue
        fresh = await harness.state(database)
        recovered += 1
        assert names(fresh) == ["first"]
        assert (harness.folder / BROKEN_NAME).read_bytes() == whole[:length]
        events = harness.events("nodes.state_recovered")
        assert len(events) == recovered
        assert (events[-1][1]["used"], events[-1][1]["expected_revision"]) == (f"{FILE_NAME}.bak", revision)
        harness.file.write_bytes(whole)
        harness.backup.write_bytes(backup)
        await database.transact(
            lambda tx: tx.execute("UPDATE node_state_file SET revision = ?, sha256 = ?", (revision, digest))
        )
    assert recovered > 10


async def test_after_a_fallback_no_code_is_live_again(harness):
    state = await harness.state()
    code = code_record()
    await state.transact(lambda unit: unit.codes.put(code))
    await named(state, "used the code")
    harness.file.write_bytes(b"")
    fresh = await harness.state()
    assert fresh.read(lambda unit: unit.codes.list()) == []
    assert decode(harness.file.read_bytes()).codes == {}


async def test_the_state_goes_on_after_a_fallback(harness):
    state = await harness.state()
    first = await named(state, "first")
    await named(state, "lost", first)
    harness.file.write_bytes(harness.file.read_bytes()[:100])
    fresh = await harness.state()
    await named(fresh, "third", first)
    assert names(await harness.state()) == ["third"]
    assert len(harness.events("nodes.state_recovered")) == 1


async def test_a_file_that_vanished_is_the_backup_again(harness):
    state = await harness.state()
    first = await named(state, "first")
    await named(state, "second", first)
    harness.file.unlink()
    assert names(await harness.state()) == ["first"]
    ((_, payload),) = harness.events("nodes.state_recovered")
    assert payload["problem"] == "it is not there"


async def test_a_copy_of_another_time_put_back_by_hand_is_taken_and_recorded(harness):
    state = await harness.state()
    first = await named(state, "first")
    old = harness.file.read_bytes()
    for number in range(4):
        await named(state, f"later {number}", first)
    harness.file.write_bytes(old)
    harness.backup.unlink()
    assert names(await harness.state()) == ["first"]
    ((_, payload),) = harness.events("nodes.state_recovered")
    assert payload["used"] == FILE_NAME and payload["expected_revision"] == 5
    assert decode(harness.file.read_bytes()).revision > 5


async def test_both_files_damaged_is_refused_and_nothing_is_overwritten(harness):
    state = await harness.state()
    await named(state, "first")
    await named(state, "second")
    harness.file.write_bytes(b"{")
    harness.backup.write_bytes(b"}")
    fresh = type(state)(harness.folder, harness.store(), harness.clock)
    with pytest.raises(NodeStateUnreadable):
        await named(fresh, "never")
    with pytest.raises(NodeStateUnreadable):
        names(fresh)
    assert (harness.file.read_bytes(), harness.backup.read_bytes()) == (b"{", b"}")


async def test_both_files_taken_away_starts_without_devices_and_says_so(harness):
    await named(await harness.state(), "first")
    harness.file.unlink()
    fresh = await harness.state()
    assert names(fresh) == []
    ((_, payload),) = harness.events("nodes.state_recovered")
    assert payload["used"] == "nothing"


async def test_a_newer_programs_file_stops_this_one(harness):
    await named(await harness.state(), "first")
    newer = harness.file.read_bytes().replace(b'"version":1', b'"version":2')
    harness.file.write_bytes(newer)
    with pytest.raises(NodeStateUnreadable, match="version 2"):
        await harness.state()
    assert harness.file.read_bytes() == newer


async def test_a_damaged_file_does_not_become_the_backup(harness):
    state = await harness.state()
    first = await named(state, "first")
    await named(state, "second", first)
    harness.file.write_bytes(b"damaged while the daemon runs")
    await named(state, "third", first)
    assert names(await harness.state()) == ["third"]
    assert [node.name for node in decode(harness.backup.read_bytes()).nodes.values()] == ["first"]


async def test_a_link_in_the_files_place_is_not_followed(harness):
    state = await harness.state()
    await named(state, "first")
    elsewhere = harness.folder / "elsewhere"
    elsewhere.write_bytes(harness.file.read_bytes())
    harness.file.unlink()
    harness.file.symlink_to(elsewhere)
    fresh = type(state)(harness.folder, harness.store(), harness.clock)
    with pytest.raises(Exception, match="cannot read"):
        names(fresh)


async def test_many_units_of_one_commit_leave_one_document_of_them_all(harness):
    state = await harness.state()
    await asyncio.gather(*(named(state, f"n{number}") for number in range(50)))
    assert len(decode(harness.file.read_bytes()).nodes) == 50
    assert {path.name for path in harness.folder.iterdir() if path.name.startswith(".")} == set()


# Every system call of one write, and death just before it: staged file, its folder, commit, link, two renames.
STEPS = ["open#1", "fchmod#1", "fsync#1", "open#2", "fsync#2", "link#1", "replace#1", "replace#2"]


@pytest.mark.promise("P-device-recovers")
@pytest.mark.parametrize("step", STEPS)
async def test_death_before_any_step_of_a_write_leaves_the_file_in_step_with_the_journal(harness, step):
    counter = node_record(registered_ms=0)
    state = await harness.state()
    for _ in range(2):
        await state.transact(lambda unit: unit.nodes.put(counter))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(CHILD), str(harness.folder), "file", "die_at", step, str(counter.id)]
    done = subprocess.run(command, env=environment, timeout=60, check=False)
    assert done.returncode == 9
    fresh = await harness.state()
    counted = fresh.read(lambda unit: unit.nodes.get(counter.id)).registered_ms
    assert counted == len(harness.events("nodes.tested"))
    assert harness.events("nodes.state_recovered") == []
    await named(fresh, "goes on")
    assert len(decode(harness.file.read_bytes()).nodes) == 2
    assert {path.name for path in harness.folder.iterdir() if path.name.startswith(".")} == set()
