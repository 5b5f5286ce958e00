"""Forbidden calls, made for real under the shipped programs, and ordinary tools that must not notice."""

import asyncio
import errno
import os
import platform
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.eventually import eventually
from fakes.launching import as_ordinary_user, python, run
from palyra.sandbox.domain.launch_spec import LaunchSpec, RLimit
from palyra.sandbox.launch.launcher import Launcher
from palyra.sandbox.layers.seccomp import build_tier_b_filter, build_tier_c_filter
from palyra.sandbox.layers.syscall_table import SYSCALLS

pytestmark = pytest.mark.promise("P-sandbox-holds")

Body = Callable[[], Awaitable[Any]]
MACHINE = platform.machine()
PROGRAMS = {"tier b": build_tier_b_filter(MACHINE), "tier c": build_tier_c_filter(MACHINE)}

ATTACK = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) for a in arguments))
    return ctypes.get_errno() if result == -1 else -result
for line in sys.argv[1].split(';'):
    name, number, *arguments = line.split(',')
    print(name, call(int(number), *(int(a) for a in arguments)))
"""

# name in the table, arguments, the errno that the filter and nothing else would give
DENIED: list[tuple[str, tuple[int, ...], int]] = [
    *((name, (0,) * 6, errno.ENOSYS) for name in ("io_uring_setup", "io_uring_enter", "io_uring_register", "clone3")),
    *(
        (name, (0,) * 6, errno.EPERM)
        for name in [
            "ptrace",
            "process_vm_readv",
            "process_vm_writev",
            "process_madvise",
            "pidfd_getfd",
            "kcmp",
            "move_pages",
            "add_key",
            "request_key",
            "keyctl",
            "bpf",
            "perf_event_open",
            "userfaultfd",
            "fanotify_init",
            "mount",
            "umount2",
            "pivot_root",
            "chroot",
            "fsopen",
            "fsconfig",
            "fsmount",
            "fspick",
            "move_mount",
            "open_tree",
            "mount_setattr",
            "setns",
            "kexec_load",
            "init_module",
            "finit_module",
            "delete_module",
            "swapon",
            "swapoff",
            "acct",
            "quotactl",
            "syslog",
            "settimeofday",
            "clock_settime",
            "adjtimex",
            "mbind",
            "open_by_handle_at",
            "sethostname",
        ]
    ),
    ("name_to_handle_at", (0,) * 6, errno.EOPNOTSUPP),
    ("unshare", (0x10000000,), errno.EPERM),
    ("unshare", (0x20000,), errno.EPERM),
    ("clone", (0x10000000 | 17,), errno.EPERM),
    ("personality", (0x0040000,), errno.EPERM),
    ("ioctl", (0, 0x5412, 0), errno.EPERM),
    ("ioctl", (0, 0x541C, 0), errno.EPERM),
    # The same request with rubbish in the upper half, which the kernel ignores.
    ("ioctl", (0, 0x5412 | 1 << 32, 0), errno.EPERM),
    ("socket", (17, 3, 0), errno.EAFNOSUPPORT),
    ("socket", (38, 5, 0), errno.EAFNOSUPPORT),
    ("socket", (40, 1, 0), errno.EAFNOSUPPORT),
    ("socket", (16, 3, 15), errno.EAFNOSUPPORT),
    ("socket", (2, 3, 1), errno.EPERM),
    ("socket", (2, 1, 132), errno.EPROTONOSUPPORT),
    ("prlimit64", (1, 7, 0, 0), errno.EPERM),
    ("openat2", (0,) * 4, errno.ENOSYS),
    ("fchmodat", (-100, 0, 0o4755), errno.EPERM),
    ("openat", (-100, 0, 0o101, 0o4755), errno.EPERM),
    ("mknodat", (-100, 0, 0o060644, 0), errno.EPERM),
]
# A number with the x32 bit: getpid through the other door.
X32_ENTRIES = [("x32", SYSCALLS[MACHINE]["getpid"] | 0x40000000, errno.ENOSYS)] if MACHINE == "x86_64" else []


@pytest.fixture(params=["as the test's user", "as nobody"])
def perform(request: pytest.FixtureRequest) -> Callable[[Body], Any]:
    async def called(body: Body) -> Any:
        return await body()

    return as_ordinary_user if request.param == "as nobody" else lambda body: asyncio.run(called(body))


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_forbidden_calls_are_refused_by_the_filter(perform: Callable[[Body], Any], program: bytes) -> None:
    calls = [
        (f"{name}{arguments}".replace(",", "."), SYSCALLS[MACHINE][name], arguments) for name, arguments, _ in DENIED
    ]
    calls += [(name, number, ()) for name, number, _ in X32_ENTRIES]
    order = ";".join(",".join(map(str, (name, number, *arguments))) for name, number, arguments in calls)

    async def body() -> str:
        async with Launcher() as launcher:
            _, output = await run(launcher, python(ATTACK, order, seccomp=program))
            return output

    seen = [int(line.split()[-1]) for line in perform(body).splitlines()]
    wanted = [number for _, _, number in DENIED] + [number for _, _, number in X32_ENTRIES]
    assert list(zip((name for name, *_ in calls), seen, strict=True)) == list(
        zip((name for name, *_ in calls), wanted, strict=True)
    )


async def test_a_32_bit_call_ends_the_process(tmp_path: Path) -> None:
    """int 0x80 in a 64-bit program: the old table, where io_uring and ptrace have other numbers."""
    source = tmp_path / "old.c"
    source.write_text(
        'int main(void) { int r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20)); return r > 0 ? 42 : 1; }'
    )
    program = tmp_path / "old"
    subprocess.run(["gcc", "-o", program, source], check=True)
    async with Launcher() as launcher:
        without, _ = await run(launcher, LaunchSpec(argv=(os.fsencode(program),)))
        with_filter, _ = await run(launcher, LaunchSpec(argv=(os.fsencode(program),), seccomp=PROGRAMS["tier c"]))
    assert without.exit_code in (42, None)
    assert with_filter.signal == signal.SIGSYS


async def test_unix_sockets_by_path_are_out_of_reach_in_tier_b_and_pairs_are_not(tmp_path: Path) -> None:
    script = """
import socket, sys
a, b = socket.socketpair(); a.send(b'pair'); print(b.recv(9))
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('CONNECTED')
except OSError as error:
    print('refused', error.errno)
"""
    import socket

    path = str(tmp_path / "daemon.sock")
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(path)
        daemon.listen()
        async with Launcher() as launcher:
            _, limited = await run(launcher, python(script, path, seccomp=PROGRAMS["tier b"]))
            _, isolated = await run(launcher, python(script, path, seccomp=PROGRAMS["tier c"]))
    assert limited.splitlines() == ["b'pair'", f"refused {errno.EAFNOSUPPORT}"]
    assert isolated.splitlines() == ["b'pair'", "CONNECTED"]


TOOLS = {
    "git": "git init -q . && git config user.email a@b && git config user.name c && echo x > f && git add f && "
    "git commit -qm m && git log --oneline && git gc -q && git diff HEAD",
    "gcc": "echo 'int main(){return 0;}' > a.c && gcc -O2 -o a a.c && ./a",
    "make": "printf 'all: x y\\nx:\\n\\techo x > x\\ny:\\n\\techo y > y\\n' > Makefile && make -j4 -s && cat x y",
    "python": "python3 -c 'import threading, subprocess, asyncio, json, sqlite3, ssl; "
    "t = threading.Thread(target=print, args=(1,)); t.start(); t.join(); "
    'print(subprocess.run(["true"]).returncode); asyncio.run(asyncio.sleep(0))\'',
    "node": 'node -e \'require("fs").writeFileSync("n", "1"); require("child_process").execSync("true"); '
    'new (require("worker_threads").Worker)("1", {eval: true}); console.log(require("os").networkInterfaces())\'',
    "tar": "mkdir d && echo 1 > d/f && tar czf t.tgz d && rm -r d && tar xzf t.tgz && cat d/f",
    "sqlite3": "sqlite3 db 'create table t(a); insert into t values(1); pragma journal_mode=wal; select * from t;'",
    "ssh-keygen": "ssh-keygen -q -t ed25519 -N '' -f key && ssh-keygen -lf key.pub",
}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_ordinary_tools_work(perform: Callable[[Body], Any], tool: str, program: bytes) -> None:
    async def body() -> tuple[int | None, int | None, str]:
        import tempfile

        with tempfile.TemporaryDirectory() as place:
            spec = LaunchSpec(
                argv=(b"/bin/sh", b"-ec", TOOLS[tool].encode()),
                env=((b"PATH", b"/usr/local/bin:/usr/bin:/bin"), (b"HOME", os.fsencode(place))),
                cwd=os.fsencode(place),
                seccomp=program,
            )
            async with Launcher() as launcher:
                ended, output = await run(launcher, spec)
        return ended.exit_code, ended.signal, output

    code, number, output = perform(body)
    assert (code, number) == (0, None), output


async def test_a_filter_stays_with_its_own_kind() -> None:
    """Launches of different kinds in turn, each by a supervisor that was ready before."""
    script = (
        "print(*(line.split()[1] for line in open('/proc/self/status') if line.startswith(('Seccomp:', 'Seccomp_f'))))"
    )
    async with Launcher() as launcher:
        for program, wanted in ((PROGRAMS["tier b"], "2 1"), (None, "0 0"), (PROGRAMS["tier c"], "2 1"), (None, "0 0")):
            for _ in range(6):
                await eventually(lambda: launcher.ready)
                _, output = await run(launcher, python(script, seccomp=program))
                assert output.strip() == wanted


CORE_LIMIT = """
import ctypes, mmap, resource
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def told():
    return resource.getrlimit(resource.RLIMIT_CORE)
print(told())
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
print(told())
# An address whose lower half is nothing, which a filter that looks at one half takes for no address at all.
libc.mmap.restype = ctypes.c_void_p
place = libc.mmap(ctypes.c_void_p(1 << 32), ctypes.c_size_t(4096), 3, 0x100022, -1, ctypes.c_long(0))
assert place == 1 << 32, place
libc.syscall(302, 0, 4, ctypes.c_void_p(place), None)
print(told())
libc.syscall(160, 4, ctypes.c_void_p(place))
print(told())
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_the_limit_of_core_files_stays_at_one(perform: Callable[[Body], Any], program: bytes) -> None:
    """With 0 the kernel would start the program that core_pattern names, outside, for a crash inside."""
    # The numbers above are those of x86_64; elsewhere they are other calls.
    assert MACHINE == "x86_64"

    async def body() -> str:
        async with Launcher() as launcher:
            outputs = []
            # The second time the filter is there before the limits are set.
            for _ in range(2):
                spec = python(CORE_LIMIT, seccomp=program, rlimits=(RLimit(name="CORE", soft=1, hard=1),))
                outputs.append((await run(launcher, spec))[1])
                await asyncio.sleep(0.3)
        assert outputs[0] == outputs[1]
        return outputs[0]

    assert perform(body).splitlines() == ["(1, 1)"] * 4 + ["(20, 20)"]
