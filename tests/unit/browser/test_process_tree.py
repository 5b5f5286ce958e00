"""Processes that begin and end together; small programs stand in for bubblewrap here."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from fakes.eventually import eventually
from fakes.processes import own_descriptors
from palyra.browser.engine.launch_plan import CDP_READ_FD, CDP_WRITE_FD, INFO_FD
from palyra.browser.engine.process_inspection import start_time
from palyra.browser.engine.process_tree import ProcessTree, StartFailed, spawn

# Says that its first process is itself, waits at the gate, and answers on the pipe.
BUILDS = """
import os
os.write(7, b'{"child-pid": %d}' % os.getpid())
os.write(6, b"\\n")
assert os.read(5, 1) == b"\\n"
os.write(4, os.read(3, 100).upper())
os.read(3, 1)
"""


def python(program: str) -> ProcessTree:
    return spawn((sys.executable, "-I", "-S", "-c", program))


async def test_it_starts_only_when_told_to_and_has_the_pipes_where_chromium_wants_them() -> None:
    before = own_descriptors()
    tree = python(BUILDS)
    try:
        assert await tree.wait_until_built() == tree.first == tree.pid
        tree.go()
        to, come = tree.take(CDP_READ_FD), tree.take(CDP_WRITE_FD)
        os.write(to, b"hello")
        assert await asyncio.to_thread(os.read, come, 100) == b"HELLO"
        os.close(to)
        os.close(come)
        assert await tree.wait_until_gone(30)
        assert tree.status == 0
    finally:
        await tree.end()
    assert own_descriptors() == before


async def test_it_gets_no_variable_and_no_other_descriptor() -> None:
    program = "import os; print(dict(os.environ), sorted(os.listdir('/proc/self/fd')), flush=True); os._exit(7)"
    passed_on = os.dup(0)
    os.set_inheritable(passed_on, True)
    tree = python(program)
    os.close(passed_on)
    with pytest.raises(StartFailed) as failed:
        await tree.wait_until_built()
    await tree.end()
    said = failed.value.details["said"]
    # The last number is the listing itself.
    assert "['0', '1', '2', '3', '4', '5', '6', '7', '8', '9']" in said
    assert os.environ["PATH"] not in said
    assert tree.status == 7


async def test_what_it_wrote_is_told_when_it_ends_early() -> None:
    tree = python("import sys; sys.stderr.write('x' * 100_000 + 'the end of it'); sys.stderr.flush()")
    with pytest.raises(StartFailed) as failed:
        await tree.wait_until_built()
    assert failed.value.details["said"].endswith("the end of it")
    assert len(failed.value.details["said"]) <= 4096
    await tree.end()


async def test_one_that_says_nonsense_is_not_taken() -> None:
    tree = python("import os; os.write(7, b'[]'); os.write(6, b'x'); os.read(5, 1)")
    with pytest.raises(StartFailed):
        await tree.wait_until_built()
    await tree.end()


async def test_a_daemon_that_goes_away_before_the_gate_starts_nothing(tmp_path: Path) -> None:
    started = tmp_path / "started"
    gate = f'echo {{\\"child-pid\\": $$}} >&7; echo >&6; read -r go <&5 && echo > {started}'
    tree = spawn(("/bin/sh", "-c", gate))
    await tree.wait_until_built()
    tree.release()
    await eventually(lambda: not (os.path.exists(f"/proc/{tree.pid}") and os.waitpid(tree.pid, os.WNOHANG) == (0, 0)))
    assert not started.exists()


# Bubblewrap's part at the moment before it gives the word: what it has started waits, and would do so for ever.
WAITS = """
import os, time
child = os.fork()
if child == 0:
    time.sleep(3600)
os.write(1, b"%d\\n" % child)
DOES
"""


@pytest.mark.promise("P-browser-ends")
@pytest.mark.parametrize("does", ["time.sleep(3600)", "os._exit(1)"])
async def test_what_waits_for_bubblewraps_word_ends_with_it(does: str) -> None:
    tree = python(WAITS.replace("DOES", does))
    async with asyncio.timeout(60):
        await eventually(lambda: tree.said)
        waiting = int(tree.said)
        if does == "os._exit(1)":
            await tree.wait_until_gone(60)
        else:
            assert start_time(waiting) is not None
        await tree.end()
        await eventually(lambda: start_time(waiting) is None)


@pytest.mark.promise("P-browser-ends")
async def test_bubblewrap_is_not_ended_by_telling_who_is_gone_what_it_started() -> None:
    tree = python("import os; os.write(7, b'x' * 4096); os.write(1, b'went on'); os.read(5, 1)")
    os.close(tree.take(INFO_FD))
    await eventually(lambda: tree.said)
    assert tree.said == "went on"
    await tree.end()


async def test_its_end_is_told_once() -> None:
    tree = python(BUILDS)
    await tree.wait_until_built()
    calls: list[int] = []
    tree.on_end(lambda: calls.append(1))
    tree.kill()
    assert await tree.wait_until_gone(30)
    assert calls == [1]
    tree.on_end(lambda: calls.append(2))
    assert calls == [1, 2]
    await tree.end()
    tree.kill()


async def test_a_program_that_is_not_there() -> None:
    before = own_descriptors()
    with pytest.raises(StartFailed):
        spawn(("/nonexistent/program",))
    assert own_descriptors() == before
