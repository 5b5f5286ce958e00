"""Starting programs through the real launcher, as whoever runs the tests and as an ordinary user."""

import asyncio
import contextlib
import os
import pickle
import shutil
import sys
import tempfile
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import palyra
from palyra.sandbox.domain.launch_spec import Exit, LaunchFailed, LaunchSpec, SupervisorLost
from palyra.sandbox.launch import supervisor_pool
from palyra.sandbox.launch.launcher import Child, Launcher

NOBODY = 65534
PYTHON = b"/usr/bin/python3"
# Prints what it was started with.
SHOW = """
import os, signal, sys
print(sys.argv[1:])
print(sorted(os.environ.items()))
print(os.getcwd())
print(oct(os.umask(0)))
print(os.getsid(0) == os.getpid())
print(sorted(int(n) for n in os.listdir('/proc/self/fd')))
lines = dict(l.split(':', 1) for l in open('/proc/self/status'))
print(lines['SigBlk'].strip(), lines['SigIgn'].strip(), lines['NoNewPrivs'].strip(), lines['Seccomp'].strip())
"""


def python(script: str, *arguments: str, **changes: Any) -> LaunchSpec:
    argv = (PYTHON, b"-I", b"-S", b"-c", script.encode(), *(argument.encode() for argument in arguments))
    return LaunchSpec(argv=argv, **changes)


@contextlib.asynccontextmanager
async def started(launcher: Launcher, spec: LaunchSpec, **options: Any) -> AsyncIterator[tuple[Child, Path]]:
    """The child and the file its two outputs go to."""
    with tempfile.NamedTemporaryFile() as output, open(os.devnull, "rb") as nothing:
        child = await launcher.launch(
            spec, stdin=nothing.fileno(), stdout=output.fileno(), stderr=output.fileno(), **options
        )
        try:
            yield child, Path(output.name)
        finally:
            with contextlib.suppress(SupervisorLost, LaunchFailed):
                await child.kill()


async def run(launcher: Launcher, spec: LaunchSpec, **options: Any) -> tuple[Exit, str]:
    async with started(launcher, spec, **options) as (child, output):
        ended = await child.wait()
        return ended, output.read_text(errors="backslashreplace")


def alive(pid: int) -> bool:
    """A zombie that nobody has collected yet is not alive."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def processes_with(marker: str) -> list[int]:
    """Everything on the machine that has this text in its arguments."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                if marker.encode() in Path(f"/proc/{name}/cmdline").read_bytes() and alive(int(name)):
                    found.append(int(name))
    return found


def as_ordinary_user(body: Callable[[], Awaitable[Any]]) -> Any:
    """Runs a coroutine function in a process that is nobody, with the system's Python for the launcher's processes.

    Palyra's source is copied to where nobody may read it. Without root the tests are an ordinary user's already.
    """
    if os.getuid() != 0:
        return asyncio.run(_called(body))
    read, write = os.pipe()
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        source = Path(palyra.__file__).parent
        shutil.copytree(
            source / "sandbox", Path(place, "palyra", "sandbox"), ignore=shutil.ignore_patterns("__pycache__")
        )
        shutil.copy(source / "__init__.py", Path(place, "palyra"))
        pid = os.fork()
        if pid == 0:
            os.close(read)
            _be_nobody(body, place, write)
        os.close(write)
        with open(read, "rb") as answers:
            answer = answers.read()
        os.waitpid(pid, 0)
    assert answer, "the ordinary user's process ended without an answer"
    worked, value = pickle.loads(answer)
    assert worked, value
    return value


async def _called(body: Callable[[], Awaitable[Any]]) -> Any:
    return await body()


def _be_nobody(body: Callable[[], Awaitable[Any]], place: str, write: int) -> None:
    try:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        os.chdir("/")
        tempfile.tempdir = "/tmp"
        supervisor_pool._PACKAGE_ROOT = place
        Launcher.__init__.__kwdefaults__["python"] = PYTHON.decode()
        asyncio.set_event_loop_policy(None)
        answer = pickle.dumps((True, asyncio.new_event_loop().run_until_complete(_called(body))))
    except BaseException:
        answer = pickle.dumps((False, traceback.format_exc()))
    with open(write, "wb") as answers:
        answers.write(answer)
    sys.stdout.flush()
    os._exit(0)
