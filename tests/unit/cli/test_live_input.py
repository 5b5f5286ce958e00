import os
from pathlib import Path

import pytest

from palyra.cli.commands.run import LiveInput, read_ready


def pipe() -> tuple[int, int]:
    return os.pipe2(os.O_CLOEXEC)


def everything(reader: int) -> bytes:
    parts = []
    while part := os.read(reader, 65536):
        parts.append(part)
    return b"".join(parts)


def test_what_is_there_is_taken_and_nothing_is_waited_for(tmp_path: Path) -> None:
    source, writer = pipe()
    assert read_ready(source) == (b"", True)
    os.write(writer, b"some")
    assert read_ready(source) == (b"some", True)
    os.write(writer, b"last")
    os.close(writer)
    assert read_ready(source) == (b"last", False)
    os.close(source)
    (tmp_path / "file").write_bytes(b"x" * 100)
    with open(tmp_path / "file", "rb", buffering=0) as file:
        assert read_ready(file.fileno()) == (b"x" * 100, False)
        file.seek(0)
        content, more = read_ready(file.fileno(), 50)
        assert len(content) > 50
        assert more


def test_everything_arrives_in_order_and_then_the_end() -> None:
    source, writer = pipe()
    live = LiveInput(source, b"first ")
    os.write(writer, b"second ")
    assert os.read(live.reader, 6) == b"first "
    os.write(writer, b"third")
    os.close(writer)
    assert everything(live.reader) == b"second third"
    live.close()
    os.close(source)


def test_a_large_first_part_does_not_wait_for_its_reader() -> None:
    source, writer = pipe()
    os.close(writer)
    first = os.urandom(1 << 20)
    live = LiveInput(source, first)
    assert everything(live.reader) == first
    live.close()
    os.close(source)


@pytest.mark.parametrize("first", [b"", b"x" * (1 << 20)], ids=["waiting to read", "waiting to write"])
def test_it_ends_when_told_to_and_leaves_nothing_open(first: bytes) -> None:
    source, writer = pipe()
    before = sorted(os.listdir("/proc/self/fd"))
    live = LiveInput(source, first)
    live.close()
    assert not live._thread.is_alive()
    assert sorted(os.listdir("/proc/self/fd")) == before
    os.close(source)
    os.close(writer)


def test_a_directory_is_no_input(tmp_path: Path) -> None:
    source = os.open(tmp_path, os.O_RDONLY)
    live = LiveInput(source)
    assert everything(live.reader) == b""
    live.close()
    os.close(source)
