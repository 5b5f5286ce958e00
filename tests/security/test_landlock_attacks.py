"""Reaching past Landlock's rules, as the test's user (root included, without capabilities) and as nobody."""

import asyncio
import os
import platform
import shutil
import socket
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.eventually import eventually
from fakes.launching import as_ordinary_user, python, run
from palyra.sandbox.domain.launch_spec import LandlockRules, LaunchSpec
from palyra.sandbox.launch.launcher import Launcher
from palyra.sandbox.layers import landlock
from palyra.sandbox.layers.seccomp import build_tier_b_filter

Body = Callable[[], Awaitable[Any]]
SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/proc")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")

ATTACK = """
import os, socket, sys, signal
here, outside, port, name = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
def attempt(what, action):
    try:
        action()
    except OSError as error:
        print('refused', what, error.errno)
    else:
        print('DONE', what)
def write(path): open(path, 'w').write('x')
attempt('write here', lambda: write(here + '/made'))
attempt('directory here', lambda: os.mkdir(here + '/dir'))
attempt('rename across here', lambda: os.rename(here + '/made', here + '/dir/made'))
attempt('read system', lambda: open('/usr/bin/env', 'rb').read(1))
attempt('write null', lambda: write('/dev/null'))
print('---')
attempt('read outside', lambda: open(outside + '/secret').read())
attempt('list outside', lambda: os.listdir(outside))
attempt('write outside', lambda: write(outside + '/made'))
attempt('truncate outside', lambda: os.truncate(outside + '/secret', 0))
attempt('remove outside', lambda: os.unlink(outside + '/secret'))
attempt('rename in', lambda: os.rename(outside + '/secret', here + '/secret'))
attempt('link in', lambda: os.link(outside + '/secret', here + '/secret'))
os.symlink(outside + '/secret', here + '/link')
attempt('through a link', lambda: open(here + '/link').read())
attempt('through proc', lambda: open('/proc/self/root' + outside + '/secret').read())
attempt('run outside', lambda: os.execv(outside + '/tool', ['tool']))
attempt('write system', lambda: write('/usr/palyra-was-here'))
attempt('device node', lambda: os.mknod(here + '/dev', 0o020666, os.makedev(1, 3)))
attempt('parent environ', lambda: open(f'/proc/{os.getppid()}/environ', 'rb').read())
attempt('signal the keeper', lambda: os.kill(os.getppid(), 0))
attempt('signal init', lambda: os.kill(1, 0))
attempt('tcp', lambda: socket.create_connection(('127.0.0.1', port), 5))
attempt('listen', lambda: socket.create_server(('127.0.0.1', 0)))
attempt('abstract socket', lambda: socket.socket(socket.AF_UNIX).connect('\\0' + name))
"""


@pytest.fixture(params=["as the test's user", "as nobody"])
def perform(request: pytest.FixtureRequest) -> Callable[[Body], Any]:
    async def called(body: Body) -> Any:
        return await body()

    return as_ordinary_user if request.param == "as nobody" else lambda body: asyncio.run(called(body))


@pytest.fixture
def place() -> Iterator[Path]:
    """A place that nobody reaches too; pytest's own is closed to other users."""
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    for path in (directory, directory / "workspace", directory / "outside"):
        path.mkdir(exist_ok=True)
        path.chmod(0o777)
    (directory / "outside" / "secret").write_text("secret")
    (directory / "outside" / "secret").chmod(0o666)
    shutil.copy("/bin/true", directory / "outside" / "tool")
    (directory / "outside" / "tool").chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def rules(place: Path, **changes: Any) -> LandlockRules:
    changes.setdefault("write", (str(place / "workspace"),))
    return LandlockRules(**{"read": SYSTEM, "devices": DEVICES, "connect_tcp": (), "bind_tcp": (), **changes})


def test_only_the_workspace_is_in_reach(perform: Callable[[Body], Any], place: Path) -> None:
    name = f"palyra-test-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0" + name)
        abstract.listen()
        port = tcp.getsockname()[1]

        async def body() -> str:
            script = python(
                ATTACK,
                str(place / "workspace"),
                str(place / "outside"),
                str(port),
                name,
                landlock=rules(place),
                drop_capabilities=True,
            )
            async with Launcher() as launcher:
                _, output = await run(launcher, script)
                return output

        allowed, _, refused = perform(body).partition("---\n")
    assert allowed.count("DONE") == 5, allowed
    # Scopes came with ABI 6, TCP with 4.
    excused = set()
    if landlock.abi() < 6:
        excused |= {"signal the keeper", "signal init", "abstract socket"}
    if landlock.abi() < 4:
        excused |= {"tcp", "listen"}
    assert [line for line in refused.splitlines() if line.startswith("DONE") and line[5:] not in excused] == []
    assert len(refused.splitlines()) == 18
    assert (place / "outside" / "secret").read_text() == "secret"


def test_a_read_only_workspace(perform: Callable[[Body], Any], place: Path) -> None:
    (place / "workspace" / "file").write_text("content")
    script = """
import os, sys
print(open(sys.argv[1] + '/file').read())
file, directory = sys.argv[1] + '/file', sys.argv[1] + '/d'
for action in (lambda: open(file, 'a'), lambda: os.unlink(file), lambda: os.mkdir(directory)):
    try:
        action(); print('DONE')
    except OSError as error:
        print('refused', error.errno)
"""
    confined = rules(place, write=(), read=(*SYSTEM, str(place / "workspace")))

    async def body() -> str:
        async with Launcher() as launcher:
            _, output = await run(launcher, python(script, str(place / "workspace"), landlock=confined))
            return output

    output = perform(body)
    assert output.startswith("content\n")
    assert output.count("refused") == 3


def test_named_ports_are_open_and_others_are_not(place: Path) -> None:
    script = """
import socket, sys
for port in sys.argv[1:]:
    try:
        socket.create_connection(('127.0.0.1', int(port)), 5); print('connected')
    except OSError as error:
        print('refused', error.errno)
"""

    async def body() -> str:
        with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
            ports = one.getsockname()[1], two.getsockname()[1]
            spec = python(script, *map(str, ports), landlock=rules(place, connect_tcp=(ports[0],)))
            async with Launcher() as launcher:
                _, output = await run(launcher, spec)
                return output

    assert asyncio.run(body()).splitlines() == ["connected", "refused 13"]


def test_rules_kept_from_one_launch_are_not_those_of_another(place: Path) -> None:
    """The second launch uses the rules that were kept from the first; the third has other rules and must not."""
    script = "import sys\nfor p in sys.argv[1:]:\n  try: open(p); print('read')\n  except OSError: print('refused')"
    secret, system = str(place / "outside" / "secret"), "/usr/bin/env"
    (place / "workspace" / "mine").write_text("x")

    async def body() -> list[str]:
        async with Launcher() as launcher:
            seen = []
            for confined in (
                rules(place),
                rules(place),
                rules(place, read=(*SYSTEM, secret)),
                rules(place),
                rules(place, write=()),
                None,
            ):
                await eventually(lambda: launcher.ready)
                spec = python(script, secret, system, str(place / "workspace" / "mine"), landlock=confined)
                seen.append(" ".join((await run(launcher, spec))[1].split()))
            return seen

    usual = "refused read read"
    assert asyncio.run(body()) == [usual, usual, "read read read", usual, "refused read refused", "read read read"]


def test_compilers_and_interpreters_work_confined(perform: Callable[[Body], Any], place: Path) -> None:
    work = place / "workspace"
    script = "echo 'int main(){return 0;}' > a.c && gcc -o a a.c && ./a && python3 -c 'import json' && git init -q g"
    spec = LaunchSpec(
        argv=(b"/bin/sh", b"-ec", script.encode()),
        env=((b"PATH", b"/usr/bin:/bin"), (b"HOME", os.fsencode(work)), (b"TMPDIR", os.fsencode(work))),
        cwd=os.fsencode(work),
        landlock=rules(place, read=(*SYSTEM, "/etc/alternatives", "/etc/passwd", "/etc/gitconfig")),
        seccomp=build_tier_b_filter(platform.machine()),
    )

    async def body() -> tuple[int | None, str]:
        async with Launcher() as launcher:
            ended, output = await run(launcher, spec)
            return ended.exit_code, output

    code, output = perform(body)
    assert code == 0, output
