import re
import subprocess

from palyra.sandbox.layers.syscall_table import ARCHITECTURES, AUDIT_ARCH, SYSCALLS

# What asm-generic/unistd.h gives to an architecture that wants what arm64 wants.
AARCH64 = """
#define __ARCH_WANT_RENAMEAT
#define __ARCH_WANT_NEW_STAT
#define __ARCH_WANT_SET_GET_RLIMIT
#define __ARCH_WANT_TIME32_SYSCALLS
#define __ARCH_WANT_SYS_CLONE3
#define __BITS_PER_LONG 64
#include <asm-generic/unistd.h>
"""


def numbers_in_headers(source: str) -> dict[str, int]:
    """Asks the C preprocessor, so that the table is checked against the kernel's own headers."""
    text = subprocess.run(
        ["gcc", "-E", "-dM", "-x", "c", "-"], input=source, text=True, capture_output=True, check=True
    ).stdout
    defined = dict(re.findall(r"#define (\w+) (\S+)", text))
    found = {}
    for name, value in defined.items():
        while value in defined:
            value = defined[value]
        if name.startswith("__NR_") and value.isdigit():
            found[name.removeprefix("__NR_")] = int(value)
    return found


def check(machine: str, source: str) -> None:
    known = numbers_in_headers(source)
    assert len(known) > 200
    compared = {name: number for name, number in SYSCALLS[machine].items() if name in known}
    assert compared == {name: known[name] for name in compared}
    # Calls newer than the headers have one number on every architecture.
    for name in SYSCALLS[machine].keys() - known.keys():
        assert SYSCALLS["x86_64"][name] == SYSCALLS["aarch64"][name] > 450


def test_x86_64_as_in_the_kernels_headers() -> None:
    check("x86_64", "#include <asm/unistd_64.h>")


def test_aarch64_as_in_the_kernels_headers() -> None:
    check("aarch64", AARCH64)


def test_each_architecture_has_an_audit_number() -> None:
    assert set(ARCHITECTURES) == set(AUDIT_ARCH)
