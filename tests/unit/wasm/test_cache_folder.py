import fcntl
import os
import subprocess
import sys
import threading
import time

import pytest

from fakes.wasm_guests import minimal, open_runtime
from palyra.wasm.compiled_modules import REST_SECONDS, CacheFolder, Removed

NOW = 1_000_000.0


def _name(number: int) -> str:
    return f"{number:064x}.cwasm"


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "compiled"
    made.mkdir(mode=0o700)
    return made


def _file(folder, name: str, *, age: float, size: int = 100) -> None:
    (folder / name).write_bytes(bytes(size))
    os.utime(folder / name, (NOW - age, NOW - age))


def _make_room(folder, *, most_bytes: int, in_use: tuple[str, ...] = ()) -> Removed:
    return CacheFolder(folder, most_bytes=most_bytes, now=lambda: NOW).make_room(in_use)


def _left(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_what_was_not_used_for_longest_goes_first_and_no_more_than_must(folder):
    for number, age in ((1, 500), (2, 900), (3, 700), (4, 300)):
        _file(folder, _name(number), age=age)
    assert _make_room(folder, most_bytes=200) == Removed(files=2, size=200)
    assert _left(folder) == {_name(1), _name(4)}
    assert _make_room(folder, most_bytes=200) == Removed()


def test_what_was_just_written_stays_even_if_it_is_too_much(folder):
    _file(folder, _name(1), age=0, size=1_000)
    _file(folder, _name(2), age=REST_SECONDS - 1)
    _file(folder, _name(3), age=REST_SECONDS + 1)
    assert _make_room(folder, most_bytes=10).files == 1
    assert _left(folder) == {_name(1), _name(2)}


def test_what_says_to_be_from_the_future_does_not_stay_for_ever(folder):
    _file(folder, _name(1), age=-1_000)
    assert _make_room(folder, most_bytes=10).files == 1


def test_what_is_in_use_counts_as_used_now(folder):
    _file(folder, _name(1), age=900)
    _file(folder, _name(2), age=800)
    CacheFolder(folder, most_bytes=100).make_room((_name(1), _name(9)))
    assert _left(folder) == {_name(1)}


def test_what_a_killed_process_left_half_written_goes_when_it_rested(folder):
    old, young = f"{1:064x}.77.{2:016x}", f"{1:064x}.78.{3:016x}"
    _file(folder, old, age=REST_SECONDS + 1)
    _file(folder, young, age=1)
    assert _make_room(folder, most_bytes=10_000).files == 1
    assert _left(folder) == {young}


def test_other_peoples_files_are_neither_counted_nor_removed(folder):
    _file(folder, "notes.txt", age=10_000, size=5_000)
    _file(folder, _name(1), age=10_000)
    (folder / _name(2)).mkdir()
    assert _make_room(folder, most_bytes=100) == Removed()
    assert _left(folder) == {"notes.txt", _name(1), _name(2)}


async def test_a_folder_that_its_owner_linked_to_another_disk_is_used(tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "compiled").symlink_to("elsewhere")
    async with open_runtime(tmp_path) as runtime:
        await runtime.compile(minimal("(i32.const 7)"))
    assert [path.suffix for path in (tmp_path / "elsewhere").iterdir()] == [".cwasm"]


def test_a_folder_that_is_not_there_has_room(tmp_path):
    assert _make_room(tmp_path / "nowhere", most_bytes=0) == Removed()


WRITER = """
import sys
from pathlib import Path
from palyra.wasm.compiled_modules import CacheFolder
with CacheFolder(Path(sys.argv[1]), most_bytes=0).lock_for_writing():
    print("writing", flush=True)
    sys.stdin.readline()
"""


def test_nothing_goes_while_another_process_writes(folder):
    _file(folder, _name(1), age=900)
    command = [sys.executable, "-c", WRITER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "writing\n"
        assert _make_room(folder, most_bytes=0) == Removed(busy=True)
        with CacheFolder(folder, most_bytes=0).lock_for_writing():
            pass
        writer.communicate("done\n")
    assert _make_room(folder, most_bytes=0).files == 1


def test_who_writes_waits_until_room_was_made(folder):
    holder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    written = threading.Event()

    def write() -> None:
        with CacheFolder(folder, most_bytes=0).lock_for_writing():
            written.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert not written.wait(0.05)
    os.close(holder)
    writer.join()
    assert written.is_set()


@pytest.mark.promise("P-limits")
async def test_a_runtime_keeps_its_folder_within_the_bound(tmp_path, caplog):
    caplog.set_level("INFO", logger="palyra.wasm")
    compiled = tmp_path / "compiled"
    async with open_runtime(tmp_path) as runtime:
        for number in range(3):
            await runtime.compile(minimal(f"(i32.const {number})"))
    long_ago = time.time() - 10 * REST_SECONDS
    for path in compiled.iterdir():
        os.utime(path, (long_ago, long_ago))
    size = max(path.stat().st_size for path in compiled.iterdir())
    async with open_runtime(tmp_path, disk_cache_bytes=2 * size, memory_cache_bytes=1) as runtime:
        newest = await runtime.compile(minimal("(i32.const 7)"))
        assert (await runtime.run(newest)).output == 7
    left = list(compiled.iterdir())
    assert len(left) == 2
    assert runtime.cache.path(bytes.fromhex(newest.digest), runtime.pool.engine) in left
    assert "removed from the cache: 2 files" in caplog.text
    async with open_runtime(tmp_path, disk_cache_bytes=0) as runtime:
        await runtime.compile(minimal("(i32.const 7)"))
    assert len(list(compiled.iterdir())) == 1, "a folder that earlier processes left too full is looked at too"


async def test_room_that_could_not_be_made_is_told_and_made_with_the_next_module(tmp_path, caplog):
    compiled = tmp_path / "compiled"
    async with open_runtime(tmp_path) as runtime:
        for number in range(3):
            await runtime.compile(minimal(f"(i32.const {number})"))
    long_ago = time.time() - 10 * REST_SECONDS
    for path in compiled.iterdir():
        os.utime(path, (long_ago, long_ago))
    async with open_runtime(tmp_path, disk_cache_bytes=0) as runtime:
        holder = os.open(compiled, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # As another process that writes, and hangs.
            fcntl.flock(holder, fcntl.LOCK_SH)
            await runtime.compile(minimal("(i32.const 7)"))
            await runtime._making_room
            assert len(list(compiled.iterdir())) == 4
            (warning,) = [record for record in caplog.records if "no room is made" in record.message]
            assert warning.levelname == "WARNING" and "another process writes there" in warning.message
        finally:
            os.close(holder)
        # Nothing new is compiled: being asked is enough.
        await runtime.compile(minimal("(i32.const 7)"))
        await runtime._making_room
        assert len(list(compiled.iterdir())) == 1
        looked = runtime._making_room
        await runtime.compile(minimal("(i32.const 7)"))
        assert runtime._making_room is looked, "and then it is over"
