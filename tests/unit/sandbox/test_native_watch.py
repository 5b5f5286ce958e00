import os
import platform
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import palyra.sandbox.native_watch as native
from fakes.eventually import eventually
from fakes.launching import alive, python, run, started
from palyra.sandbox.launch import supervisor_pool
from palyra.sandbox.launch.launcher import Launcher
from palyra.sandbox.launch.supervisor import wire
from palyra.sandbox.layers import linux_calls

SOURCE = Path(native.__file__).with_name("native_watch.s")
# The same without the native watch, as where it cannot be had.
IN_PYTHON = supervisor_pool._ZYGOTE.replace(
    "; main(", "; import palyra.sandbox.native_watch as native; native.open_watch = lambda: None; main("
)

# Long enough that the kernel counts some of it: what it counts may come in whole ticks.
BUSY = "sum(range(3_000_000))"


def test_the_bytes_are_what_the_source_assembles_to(tmp_path: Path) -> None:
    """Only this proves that the machine code in the Python file is the commented source beside it."""
    made, raw = tmp_path / "made.o", tmp_path / "made.bin"
    assert platform.machine() == "x86_64", "the source is for x86-64"
    subprocess.run(["as", "--64", "-o", made, SOURCE], check=True)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", made, raw], check=True)
    assert raw.read_bytes() == native._X86_64


def test_the_source_and_the_state_agree_on_its_places() -> None:
    places = dict(
        line.split("#")[0].split(".set")[1].split(",") for line in SOURCE.read_text().splitlines() if ".set" in line
    )
    said = {name.strip(): int(value) for name, value in places.items()}
    assert (said["ENDED"], said["MESSAGE"], said["AFTER_YOU"]) == (
        native._ENDED_AT,
        native._MESSAGE_AT,
        native._AFTER_YOU_AT,
    )
    assert said["MESSAGE_BYTES"] == wire.DONE.size and said["USAGE_WORDS"] == wire.USAGE_NUMBERS
    assert said["MESSAGE"] + said["MESSAGE_BYTES"] == said["ANY_STATUS"]


def test_the_code_is_not_writable() -> None:
    address = native.open_watch()
    assert address is not None
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(part, 16) for part in line.split()[0].split("-"))
        if first <= address < last:
            assert line.split()[1] == "r-xp"
            return
    pytest.fail("the code is not mapped")


class Watched(NamedTuple):
    daemon: socket.socket
    zygote: int
    answer: int


def keeper(program: Callable[[], None], rest: float = 0.05) -> tuple[Watched, Callable[[], int]]:
    """A process that watches over one it starts, natively. Its exit code says what was seen: told, ended, childless."""
    daemon, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    zygote_lives, zygote = os.pipe()
    address = native.open_watch()
    assert address is not None
    pid = os.fork()
    if pid == 0:
        try:
            os.close(zygote)
            daemon.close()
            linux_calls.prctl(linux_calls.PR_SET_CHILD_SUBREAPER, 1)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
            died = linux_calls.signal_descriptor(signal.SIGCHLD)
            started = os.fork()
            if started == 0:
                try:
                    program()
                finally:
                    os._exit(3)
            descriptors = (end.fileno(), zygote_lives, died)
            watch = native.Watch(address, descriptors, started, rest=rest, after_you=0.0)
            told = watch.told()
            ended, childless, status, usage = watch.collected()
            right = not ended or (status == 3 << 8 and usage[4] > 0)
            os._exit(told | ended << 1 | childless << 2 | (not right) << 3)
        finally:
            os._exit(99)
    end.close()
    os.close(zygote_lives)
    return Watched(daemon, zygote, pid), lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def closing() -> Iterator[list[Watched]]:
    opened: list[Watched] = []
    yield opened
    for each in opened:
        each.daemon.close()
        os.close(each.zygote)


def test_a_program_that_ends_by_itself_is_told(closing: list[Watched]) -> None:
    watched, result = keeper(lambda: None)
    closing.append(watched)
    tag, status, *usage, orphans, survivors = wire.DONE.unpack(watched.daemon.recv(1000))
    assert (tag[:1], status, orphans, survivors) == (wire.DONE_TAG, 3 << 8, 0, 0)
    assert usage[wire.RUSAGE_COUNTERS["maxrss_kib"]] > 0
    assert result() == 0b111


def test_what_it_left_behind_and_ends_soon_is_waited_for(closing: list[Watched]) -> None:
    def leaves_one() -> None:
        if os.fork() == 0:
            time.sleep(0.01)
            os._exit(0)

    # Longer than a busy machine takes for a hundredth of a second.
    watched, result = keeper(leaves_one, rest=0.9)
    closing.append(watched)
    assert wire.DONE.unpack(watched.daemon.recv(1000))[1] == 3 << 8
    assert result() == 0b111


def test_what_goes_on_is_for_somebody_else_to_end(closing: list[Watched]) -> None:
    reading, writing = os.pipe()

    def leaves_one() -> None:
        if os.fork() == 0:
            os.read(reading, 1)
            os._exit(0)

    watched, result = keeper(leaves_one)
    closing.append(watched)
    # Ended, and neither told nor childless.
    assert result() == 0b010
    os.write(writing, b"1")
    os.close(reading)
    os.close(writing)
    watched.daemon.settimeout(5)
    assert watched.daemon.recv(1000) == b""


@pytest.mark.parametrize("event", ["a word", "daemon gone", "zygote gone", "an orphan ended"])
def test_everything_else_is_for_somebody_else_to_decide(event: str, closing: list[Watched]) -> None:
    reading, writing = os.pipe()

    def is_unfinished() -> None:
        os.close(writing)
        if event == "an orphan ended" and os.fork() == 0:
            if os.fork() == 0:
                time.sleep(0.02)
            os._exit(0)
        # Until the test has ended, however long that takes.
        os.read(reading, 1)

    watched, result = keeper(is_unfinished)
    closing.append(watched)
    if event == "a word":
        watched.daemon.send(wire.KILL_TAG)
    elif event == "daemon gone":
        watched.daemon.close()
    elif event == "zygote gone":
        os.close(watched.zygote)
        closing[-1] = watched._replace(zygote=os.dup(0))
    try:
        assert result() == 0
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("zygote", [supervisor_pool._ZYGOTE, IN_PYTHON], ids=["native", "in Python"])
async def test_programs_end_the_same_way_natively_and_in_python(zygote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "lambda: None" in IN_PYTHON
    monkeypatch.setattr(supervisor_pool, "_ZYGOTE", zygote)
    async with Launcher(ready=1) as launcher:
        ended, said = await run(launcher, python(f"import sys; {BUSY}; print('here'); sys.exit(7)"))
        assert (ended.exit_code, ended.signal, said, ended.survivors) == (7, None, "here\n", 0)
        assert ended.rusage["user_seconds"] > 0 and ended.rusage["maxrss_kib"] > 1000
        ended, _ = await run(launcher, python("import os, signal; os.kill(os.getpid(), signal.SIGUSR1)"))
        assert (ended.exit_code, ended.signal) == (None, signal.SIGUSR1)
        ended, _ = await run(
            launcher, python("import os, time\nif os.fork() == 0:\n    os.setsid(); time.sleep(60)\nos._exit(0)")
        )
        assert (ended.exit_code, ended.orphans_killed, ended.survivors) == (0, 1, 0)
        script = "import os, time\nprint(os.getpid(), flush=True)\nfor _ in range(5):\n    os.fork()\ntime.sleep(60)"
        async with started(launcher, python(script)) as (child, output):
            await eventually(lambda: output.read_text() != "")
            ended = await child.kill()
            assert ended.signal == signal.SIGKILL and ended.survivors == 0 and not alive(child.pid)
