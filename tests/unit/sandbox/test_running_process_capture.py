import asyncio
import fcntl
import os

import pytest

from palyra.sandbox.running_process import OutputCapture, StreamName


async def test_both_streams_share_one_quota() -> None:
    capture = OutputCapture(10)
    capture.listen()
    out, err = capture.writers()
    os.write(out, b"123456")
    await asyncio.sleep(0.01)
    os.write(err, b"abcdefgh")
    await capture.exceeded
    assert capture.kept(StreamName.STDOUT) == b"123456" and not capture.truncated(StreamName.STDOUT)
    assert capture.kept(StreamName.STDERR) == b"abcd" and capture.truncated(StreamName.STDERR)
    capture.close()


async def test_exactly_the_quota_is_not_too_much() -> None:
    capture = OutputCapture(4)
    os.write(capture.writers()[0], b"1234")
    capture.finish()
    assert capture.kept(StreamName.STDOUT) == b"1234"
    assert not capture.exceeded.done() and not capture.truncated(StreamName.STDOUT)


async def test_the_sink_sees_what_is_kept() -> None:
    seen: list[tuple[str, bytes]] = []
    capture = OutputCapture(3, lambda name, chunk: seen.append((name.value, chunk)))
    capture.listen()
    os.write(capture.writers()[1], b"12345")
    await capture.exceeded
    capture.close()
    assert seen == [("stderr", b"123")]


async def test_less_than_the_quota_may_be_kept_while_the_sink_sees_all_of_it() -> None:
    seen: list[bytes] = []
    capture = OutputCapture(100, lambda _, chunk: seen.append(chunk), keep=3)
    capture.listen()
    out, err = capture.writers()
    os.write(out, b"12")
    await asyncio.sleep(0.01)
    os.write(err, b"abcdef")
    await asyncio.sleep(0.01)
    os.write(out, b"34")
    capture.finish()
    assert b"".join(seen) == b"12abcdef34"
    assert (capture.kept(StreamName.STDOUT), capture.kept(StreamName.STDERR)) == (b"12", b"a")
    assert capture.truncated(StreamName.STDOUT) and capture.truncated(StreamName.STDERR)
    assert not capture.exceeded.done()


async def test_whoever_else_has_the_pipes_is_not_waited_for_and_adds_nothing() -> None:
    seen: list[bytes] = []
    capture = OutputCapture(1 << 30, lambda _, chunk: (seen.append(chunk), os.write(kept, b"more"))[0])
    out, err = capture.writers()
    kept = os.dup(out)
    fcntl.fcntl(out, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.write(out, b"o" * 300_000)
    os.write(err, b"e" * 50_000)
    capture.finish()
    assert sum(map(len, seen)) == 350_000 and len(capture.kept(StreamName.STDOUT)) == 300_000
    assert capture.kept(StreamName.STDERR) == b"e" * 50_000
    with pytest.raises(BrokenPipeError):
        os.write(kept, b"x")
    os.close(kept)


async def test_who_empties_the_pipe_itself_stops_nobody() -> None:
    """The writing end of a pipe can be opened once more, for reading."""
    capture = OutputCapture(1 << 20, lambda _, chunk: (taken.append(chunk), os.read(other, 1 << 20))[0])
    taken: list[bytes] = []
    out, _ = capture.writers()
    other = os.open(f"/proc/self/fd/{out}", os.O_RDONLY)
    fcntl.fcntl(out, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.write(out, b"o" * 200_000)
    capture.finish()
    assert 0 < sum(map(len, taken)) < 200_000
    os.close(other)


async def test_nothing_is_left_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        capture = OutputCapture(3)
        capture.listen()
        capture.close()
        capture.finish()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_all_that_is_left_in_the_pipes_is_read_at_the_end_though_somebody_could_still_write() -> None:
    capture = OutputCapture(1 << 20)
    copy = os.dup(capture.writers()[0])
    fcntl.fcntl(copy, fcntl.F_SETPIPE_SZ, 1 << 18)
    os.write(copy, b"x" * 200_000)
    os.write(capture.writers()[1], b"problem")
    capture.finish()
    assert (len(capture.kept(StreamName.STDOUT)), capture.kept(StreamName.STDERR)) == (200_000, b"problem")
    os.close(copy)


async def test_what_is_left_counts_against_the_quota() -> None:
    capture = OutputCapture(3)
    for writer in capture.writers():
        os.write(writer, b"1234")
    capture.finish()
    assert capture.exceeded.done() and capture.kept(StreamName.STDOUT) == b"123"
    assert capture.truncated(StreamName.STDOUT) and capture.truncated(StreamName.STDERR)


async def test_the_end_of_a_program_wakes_nobody_to_read_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    read = os.read
    capture = OutputCapture(3)
    capture.listen()
    theirs = [os.dup(writer) for writer in capture.writers()]

    def noted(descriptor: int, size: int) -> bytes:
        reads.append(descriptor)
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", noted)
    for writer in theirs:
        os.close(writer)
    await asyncio.sleep(0.01)
    assert not reads
    capture.finish()
