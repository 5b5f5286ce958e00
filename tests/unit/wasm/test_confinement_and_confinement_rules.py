import os
import subprocess
import sys

import pytest

from palyra.sandbox.layers.seccomp import UnknownArchitecture
from palyra.sandbox.layers.syscall_table import SYSCALLS
from palyra.wasm.process import confinement
from palyra.wasm.process.syscall_filter import ALLOWED, confinement_program


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_program_ends_every_way_and_no_jump_leaves_it(machine):
    program = confinement_program(machine)
    count = len(program) // 8
    assert count < 4096
    for place in range(count):
        code, if_true, if_false = (
            int.from_bytes(program[place * 8 : place * 8 + 2], "little"),
            *program[place * 8 + 2 :][:2],
        )
        if code == 0x15:
            assert place + 1 + max(if_true, if_false) < count
    assert program[-8:-4] == b"\x06\0\0\0"


def test_numbers_are_those_of_the_other_table_and_each_has_a_reason():
    for entry in ALLOWED:
        assert entry.reason
        for machine, number in (("x86_64", entry.x86_64), ("aarch64", entry.aarch64)):
            known = SYSCALLS[machine].get(entry.name)
            assert known is None or known == number
    forbidden = {
        "execve",
        "execveat",
        "socket",
        "connect",
        "openat",
        "open",
        "ptrace",
        "kill",
        "prctl",
        "ioctl",
        "clone3",
    }
    assert not forbidden & {entry.name for entry in ALLOWED}


def test_an_unknown_machine_has_no_program():
    with pytest.raises(UnknownArchitecture):
        confinement_program("pdp11")


def test_a_process_gets_its_name_and_its_limits():
    """In a process of its own: none of it can be undone."""
    program = """
import os, resource
from palyra.wasm.process import confinement
from palyra.sandbox.layers import linux_calls
linux_calls.name_this_process(b"a-name-of-its-own-too-long")
confinement.hide()
confinement.limit_resources(123 << 20)
print(open("/proc/self/comm").read().strip(), resource.getrlimit(resource.RLIMIT_DATA)[1] >> 20,
      resource.getrlimit(resource.RLIMIT_CORE)[1])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.split() == [b"a-name-of-its-o", b"123", b"0"]


def test_a_process_without_its_parent_ends():
    program = "from palyra.wasm.process import confinement; confinement.die_with_parent(1 << 22); print('lives')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert confinement.die_with_parent is not None
    assert os.getppid() > 0
