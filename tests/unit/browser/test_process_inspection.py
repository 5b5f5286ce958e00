"""What /proc says of real processes."""

import os
import socket
import subprocess
import sys
import threading

import pytest

from fakes.eventually import eventually_sync
from palyra.browser.engine.process_inspection import (
    descendants,
    inspect_process,
    is_ending,
    look_at_network,
    start_time,
)

_SLEEP = "import sys; sys.stdin.read()"


def test_a_process_is_named_for_good_by_its_number_and_its_start() -> None:
    own = start_time(os.getpid())
    assert own is not None and own == start_time(os.getpid())
    with subprocess.Popen([sys.executable, "-c", _SLEEP], stdin=subprocess.PIPE) as child:
        later = start_time(child.pid)
        assert later is not None and later >= own
        assert not is_ending(child.pid)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        # It has ended, and its number is not free yet.
        assert start_time(child.pid) is None and is_ending(child.pid)
    assert start_time(child.pid) is None and is_ending(child.pid)


def test_children_of_every_thread_are_found() -> None:
    children: list[subprocess.Popen[bytes]] = []
    there, done = threading.Event(), threading.Event()

    def start() -> None:
        children.append(subprocess.Popen([sys.executable, "-c", _SLEEP], stdin=subprocess.PIPE))
        there.set()
        done.wait()

    thread = threading.Thread(target=start)
    thread.start()
    there.wait()
    try:
        assert children[0].pid in descendants(os.getpid())
    finally:
        done.set()
        thread.join()
        children[0].kill()
        children[0].communicate()


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ((), "unnamed"),
        (("--type=renderer", "--x"), "renderer"),
        (("--type=utility", "--utility-sub-type=network.mojom.NetworkService"), "network.mojom.NetworkService"),
        (("--type=renderer --lang=en",), "renderer --lang=en"),
    ],
)
def test_the_kind_of_a_process_is_in_its_words(words: tuple[str, ...], kind: str) -> None:
    with subprocess.Popen([sys.executable, "-c", _SLEEP, *words], stdin=subprocess.PIPE) as child:
        # For a moment after its start it has no words at all.
        eventually_sync(lambda: inspect_process(child.pid))
        seen = inspect_process(child.pid)
        child.kill()
    assert seen is not None and seen.uid == os.geteuid()
    assert seen.kind == kind


def test_a_process_that_is_gone_is_none() -> None:
    with subprocess.Popen(["/bin/true"]) as child:
        child.wait()
    assert inspect_process(child.pid) is None


def test_the_network_of_this_process_is_not_its_own_and_shows_what_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as four:
        seen = look_at_network(os.getpid())
        assert ("127.0.0.1", four.getsockname()[1]) in seen.listening
    assert not seen.is_own
    assert "lo" in seen.interfaces


@pytest.mark.skipif(not socket.has_ipv6, reason="the machine has no IPv6")
def test_listeners_of_the_other_family_are_seen() -> None:
    try:
        six = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("the machine's loopback has no IPv6 address")
    with six:
        assert ("::1", six.getsockname()[1]) in look_at_network(os.getpid()).listening
