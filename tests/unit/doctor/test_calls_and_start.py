import errno
import os
import platform

import pytest

from palyra.doctor.attacks.probes import calls
from palyra.sandbox.layers.syscall_table import SYSCALLS

NUMBERS = SYSCALLS[platform.machine()]


def test_a_call_gives_its_result_or_raises() -> None:
    assert calls.call(NUMBERS["getpid"]) == os.getpid()
    with pytest.raises(OSError) as raised:
        calls.call(NUMBERS["close"], -1)
    assert raised.value.errno == errno.EBADF


def test_a_call_that_the_processor_lacks_cannot_be_tried() -> None:
    assert calls.number_of({"calls": {"x": 7}}, "x") == 7
    with pytest.raises(calls.NotApplicable):
        calls.number_of({"calls": {}}, "x")


def test_arguments_as_they_are_spelled() -> None:
    text, buffer, number, nothing = calls.raw_arguments(["/x", {"hex": "0102"}, 5, None])
    assert (text.value, buffer.raw, number, nothing) == (b"/x", b"\x01\x02", 5, None)


def test_a_child_always_ends() -> None:
    def refused() -> int:
        raise OSError(errno.EPERM, "no")

    assert os.WEXITSTATUS(calls.in_child(lambda: 3)) == 3
    assert os.WEXITSTATUS(calls.in_child(refused)) == 100 + errno.EPERM
