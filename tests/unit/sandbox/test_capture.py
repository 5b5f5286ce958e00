import asyncio
import os

from palyra.sandbox.capture import OutputCapture, StreamName


async def test_both_streams_share_one_quota() -> None:
    capture = OutputCapture(10)
    out, err = capture.writers()
    os.write(out, b"123456")
    await asyncio.sleep(0.01)
    os.write(err, b"abcdefgh")
    await capture.exceeded.wait()
    assert capture.kept(StreamName.STDOUT) == b"123456" and not capture.truncated(StreamName.STDOUT)
    assert capture.kept(StreamName.STDERR) == b"abcd" and capture.truncated(StreamName.STDERR)
    capture.close()
    await capture.finished()


async def test_exactly_the_quota_is_not_too_much() -> None:
    capture = OutputCapture(4)
    os.write(capture.writers()[0], b"1234")
    capture.handed_over()
    await capture.finished()
    assert not capture.exceeded.is_set() and not capture.truncated(StreamName.STDOUT)


async def test_the_sink_sees_what_is_kept() -> None:
    seen: list[tuple[str, bytes]] = []
    capture = OutputCapture(3, lambda name, chunk: seen.append((name.value, chunk)))
    os.write(capture.writers()[1], b"12345")
    await capture.exceeded.wait()
    capture.close()
    assert seen == [("stderr", b"123")]


async def test_less_than_the_quota_may_be_kept_while_the_sink_sees_all_of_it() -> None:
    seen: list[bytes] = []
    capture = OutputCapture(100, lambda _, chunk: seen.append(chunk), keep=3)
    out, err = capture.writers()
    os.write(out, b"12")
    await asyncio.sleep(0.01)
    os.write(err, b"abcdef")
    await asyncio.sleep(0.01)
    os.write(out, b"34")
    capture.handed_over()
    await capture.finished()
    assert b"".join(seen) == b"12abcdef34"
    assert (capture.kept(StreamName.STDOUT), capture.kept(StreamName.STDERR)) == (b"12", b"a")
    assert capture.truncated(StreamName.STDOUT) and capture.truncated(StreamName.STDERR)
    assert not capture.exceeded.is_set()


async def test_nothing_is_left_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        capture = OutputCapture(3)
        capture.close()
        await capture.finished()
    assert len(os.listdir("/proc/self/fd")) == before
