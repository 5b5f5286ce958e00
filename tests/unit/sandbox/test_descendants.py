"""In a process of their own: these functions reap and kill whatever the calling process has."""

import os
import subprocess
import sys
from pathlib import Path

import palyra

ROOT = str(Path(palyra.__file__).parents[1])

PRELUDE = """
import os, sys, time, signal
sys.path.insert(0, sys.argv[1])
from palyra.sandbox.launch.supervisor import descendants
from palyra.sandbox.layers import linux_calls
linux_calls.prctl(linux_calls.PR_SET_CHILD_SUBREAPER, 1)
def child(action=lambda: None):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        action(); os.write(write, b'x'); time.sleep(60); os._exit(0)
    os.read(read, 1); os.close(read); os.close(write)
    return pid
"""


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + script, ROOT],
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_both_ways_of_finding_children_agree() -> None:
    script = """
pids = {child(), child(os.setsid), child()}
assert set(descendants.direct_children()) == pids == set(descendants._children_by_search(os.getpid()))
print(descendants.end_all())
assert descendants.direct_children() == []
"""
    assert run(script) == "(3, 0)\n"


def test_every_generation_ends_and_spared_children_do_not() -> None:
    script = """
spared = child()
doomed = child(lambda: child(lambda: child(os.setsid)))
met, refused = descendants.kill_children(frozenset({spared}))
assert (met, refused) == (1, 0)
while doomed not in descendants.reap()[0]: time.sleep(0.005)
while [p for p in descendants.direct_children() if p != spared]:
    descendants.kill_children(frozenset({spared})); descendants.reap()
os.kill(spared, 0)
print(descendants.end_all())
"""
    assert run(script) == "(1, 0)\n"


def test_our_own_process_group_is_not_hit() -> None:
    """A child in the caller's own group is killed by number, never by group."""
    assert run("child(); print(descendants.end_all())") == "(1, 0)\n"


def test_a_child_that_became_another_user_is_reported_not_waited_for() -> None:
    if os.getuid() != 0:
        return
    script = """
descendants.GIVE_UP_ON_STRANGERS_SECONDS = 0.05
pid = child()
os.setresuid(65534, 65534, 0)
print(descendants.end_all())
os.seteuid(0)
os.kill(pid, 9)
"""
    assert run(script) == "(0, 1)\n"


def test_nothing_to_end() -> None:
    assert run("print(descendants.end_all(), descendants.reap())") == "(0, 0) ([], False)\n"
