import os
import select
import signal
from pathlib import Path

import pytest

from palyra.sandbox.layers import linux_calls


def test_a_blocked_signal_makes_the_descriptor_readable() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    descriptor = linux_calls.signal_descriptor(signal.SIGUSR2)
    try:
        assert select.select([descriptor], [], [], 0)[0] == []
        signal.raise_signal(signal.SIGUSR2)
        assert select.select([descriptor], [], [], 5)[0] == [descriptor]
        assert os.read(descriptor, 128)[0] == signal.SIGUSR2
        assert not os.get_inheritable(descriptor)
    finally:
        os.close(descriptor)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_names_are_cut_to_what_the_kernel_keeps() -> None:
    before = Path("/proc/self/comm").read_bytes().strip()
    linux_calls.name_this_process(b"a-name-that-is-too-long")
    seen = Path("/proc/self/comm").read_bytes().strip()
    linux_calls.name_this_process(before)
    assert seen == b"a-name-that-is-"


def test_failures_are_os_errors() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        linux_calls.prctl(999_999, 0)


def test_a_file_that_is_no_namespace_cannot_be_entered() -> None:
    with open("/dev/null") as file, pytest.raises(OSError, match="Invalid argument"):
        linux_calls.enter_namespace(file.fileno(), linux_calls.CLONE_NEWNET)
