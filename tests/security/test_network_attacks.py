"""Strict egress with allowed hosts, from inside a Tier C sandbox: those work without any setting, nothing else does.

Performed as this user and, run as a program (``test_network_attacks.py DIR``), as an ordinary one; with the filter
of system calls, and with one that allows everything, so that the namespaces alone are what holds.
"""

import asyncio
import os
import socket
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from unittest import mock

import pytest

from fakes.egress_proxy import FakeNetworkProxy
from fakes.isolated import ALLOW_ALL
from fakes.ordinary_user import run_as_ordinary_user
from palyra.sandbox import runner as sandbox_runner
from palyra.sandbox.domain.process_run import ProcessCommand, ProcessOutcome
from palyra.sandbox.domain.profile import Layer, SandboxLimits, SandboxProfile
from palyra.sandbox.runner import ProcessRunner, RunnerSettings

pytestmark = pytest.mark.promise("P-net-named")

HELLO = b"hello from outside"
HOSTS = ("allowed.example", "db.example:8443")

# Each attempt prints ESCAPED when it succeeds; the last line proves that the script came to its end.
PRELUDE = """
import ctypes, errno, os, socket, struct, subprocess, sys, urllib.request
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, action):
    try:
        result = action()
    except BaseException as error:
        print("blocked", name, type(error).__name__, error)
    else:
        print("ESCAPED", name, repr(result)[:200])
def call(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0:
        problem = ctypes.get_errno()
        raise OSError(problem, os.strerror(problem))
    return result
def talk(address, port):
    # A door may accept and hang up: only an answer is a way out.
    with socket.create_connection((address, port), 5) as c:
        c.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
        answer = c.recv(100)
        if not answer:
            raise OSError("hung up")
        return answer
"""


class Harness:
    def __init__(self, base: Path, port: int) -> None:
        self.base = base
        self.port = port
        self.workspace = base / "workspace"
        self.workspace.mkdir(exist_ok=True)
        (base / "scratch").mkdir(exist_ok=True)
        outside = ("127.0.0.1", port)
        self.proxy = FakeNetworkProxy(
            {("allowed.example", 80): outside, ("allowed.example", 443): outside, ("db.example", 8443): outside}
        )
        self.runner = ProcessRunner(RunnerSettings(scratch=str(base / "scratch")))
        self.profile = SandboxProfile(
            workspace_root=str(self.workspace),
            allowed_egress_hosts=HOSTS,
            allow_interpreters=True,
            limits=SandboxLimits(timeout_ms=60_000),
        )

    async def run(self, command: str, *args: str) -> ProcessOutcome:
        return await self.runner.run_constrained_process(
            self.profile, ProcessCommand(command=command, args=args), listener=self.proxy
        )

    async def python(self, script: str) -> ProcessOutcome:
        (self.workspace / "script.py").write_text(PRELUDE + textwrap.dedent(script))
        return await self.run("/usr/bin/python3", "-I", "script.py")

    async def attack(self, script: str) -> ProcessOutcome:
        outcome = await self.python(textwrap.dedent(script) + '\nprint("finished")\n')
        text = outcome.stdout.decode()
        assert "finished" in text, outcome
        assert "ESCAPED" not in text, text
        return outcome


@asynccontextmanager
async def harness_in(base: Path) -> AsyncIterator[Harness]:
    """With a server outside, on the host's own loopback, that greets whoever asks."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.read(1000)
        web = asked.startswith(b"GET")
        writer.write((b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" if web else b"") + HELLO)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    harness = Harness(base, server.sockets[0].getsockname()[1])
    try:
        yield harness
    finally:
        await harness.runner.close()
        server.close()


async def allowed_hosts_work(harness: Harness) -> None:
    """With no proxy setting: urllib, raw TCP, names through the C library over UDP and TCP, curl."""
    outcome = await harness.python(
        """
        print(urllib.request.urlopen("http://allowed.example/", timeout=10).read().decode())
        for name, port in (("allowed.example", 443), ("db.example", 8443)):
            with socket.create_connection((name, port), 10) as c:
                c.sendall(b"raw")
                c.shutdown(socket.SHUT_WR)
                print(c.recv(100).decode())
        print(socket.getaddrinfo("db.example", 8443, proto=socket.IPPROTO_TCP))
        query = b"\\1\\2\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\7allowed\\7example\\0\\0\\1\\0\\1"
        with socket.create_connection(("127.0.0.1", 53), 10) as c:
            c.sendall(len(query).to_bytes(2, "big") + query)
            print(c.recv(1000)[-4:])
        with socket.create_connection(("127.0.0.1", 1080), 10) as c:
            c.sendall(b"CONNECT db.example:8443 HTTP/1.1\\r\\n\\r\\n")
            print(c.recv(100))
            c.sendall(b"raw")
            print(c.recv(100).decode())
        print([name for name in os.environ if "proxy" in name.lower()])
        """
    )
    lines = outcome.stdout.decode().splitlines()
    hello = HELLO.decode()
    assert lines[:3] == [hello, hello, hello], outcome
    assert "127.0.1.2" in lines[3] and lines[4] == repr(b"\x7f\0\1\1")
    assert lines[5:] == [repr(b"HTTP/1.1 200 OK\r\n\r\n"), hello, "[]"]
    assert outcome.egress is not None and outcome.egress.connections == 4
    assert outcome.egress.bytes_down >= 4 * len(HELLO)
    line = outcome.receipt.line(Layer.EGRESS)
    assert line is not None and line.held and line.asked == "strict, 2 allowed hosts"
    assert "only lo, no route" in line.got and "transparent 0.0.0.0:8443" in line.got and "4 connections" in line.got
    curl = await harness.run("curl", "-sS", "http://allowed.example/")
    assert (curl.exit_code, curl.stdout) == (0, HELLO), curl


async def nothing_else_is_reached(harness: Harness) -> None:
    outcome = await harness.attack(
        f"""
        for name in ("other.example", "localhost.other", "allowed.example.evil", "xallowed.example", "metadata"):
            attempt("name " + name, lambda: socket.getaddrinfo(name, 80))
        # Listeners that know no name for the address, ports that nobody opened, addresses without a route.
        for address in ("127.0.0.1", "127.0.0.2", "127.0.1.3", "127.255.255.254", "0.0.0.0", "127.0.0.53"):
            for port in (80, 443, 8443):
                attempt(f"{{address}}:{{port}}", lambda: talk(address, port))
        for address in ("192.0.2.1", "169.254.169.254", "10.0.0.1", "255.255.255.255", "224.0.0.1"):
            for port in (53, 80, 443):
                attempt(f"{{address}}:{{port}}", lambda: talk(address, port))
        for name, port in (("allowed.example", 8443), ("allowed.example", 22), ("db.example", 80),
                           ("db.example", 443), ("allowed.example", {harness.port}), ("127.0.0.1", {harness.port})):
            attempt(f"{{name}}:{{port}}", lambda: talk(name, port))
        """
    )
    assert outcome.egress is not None and outcome.egress.connections == 0 and outcome.egress.bytes_down == 0
    line = outcome.receipt.line(Layer.EGRESS)
    assert line is not None and "refused (egress.host_not_allowed" in line.got


async def other_protocols_go_nowhere(harness: Harness) -> None:
    await harness.attack(
        f"""
        def udp(family, address):
            with socket.socket(family, socket.SOCK_DGRAM) as s:
                s.settimeout(2)
                s.connect(address)
                s.send(b"x")
                s.send(b"x")
                return s.recv(100)
        for address in ("192.0.2.1", "127.0.0.1", "127.0.1.1", "255.255.255.255"):
            for port in (123, 443, {harness.port}):
                attempt(f"udp {{address}}:{{port}}", lambda: udp(socket.AF_INET, (address, port)))
        attempt("udp 53 elsewhere", lambda: udp(socket.AF_INET, ("192.0.2.1", 53)))
        for address in ("::1", "2001:db8::1", "fe80::1%lo", "ff02::1", "64:ff9b::c000:201"):
            attempt("udp6 " + address, lambda: udp(socket.AF_INET6, (address, 53)))
            for port in (80, 443, 1080, 8443, {harness.port}):
                attempt(f"tcp6 {{address}}:{{port}}", lambda: talk(address, port))
        attempt("mapped address", lambda: talk("::ffff:127.0.0.9", 443))
        attempt("mapped host loopback", lambda: talk("::ffff:127.0.0.1", {harness.port}))
        attempt("six only", lambda: socket.getaddrinfo("allowed.example", 80, family=socket.AF_INET6))
        attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
        attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
        attempt("abstract socket of the host", lambda: socket.socket(socket.AF_UNIX).connect("\\0{ABSTRACT}"))
        """
    )


async def listeners_cannot_be_bound_over(harness: Harness) -> None:
    """The program may be of the same user as the sockets: SO_REUSEPORT on both sides would share them."""
    outcome = await harness.attack(
        """
        OPTIONS = ((), ("SO_REUSEADDR",), ("SO_REUSEPORT",), ("SO_REUSEADDR", "SO_REUSEPORT"))
        def bind(kind, address, port, options):
            s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
            for option in options:
                s.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 1)
            if ":" in address:
                s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            s.bind((address, port))
            if kind == socket.SOCK_STREAM:
                s.listen()
        for options in OPTIONS:
            for address in ("0.0.0.0", "127.0.0.1", "::", "::ffff:127.0.0.1"):
                for port in (53, 80, 443, 1080, 8443):
                    attempt(f"tcp {address}:{port} {options}", lambda: bind(socket.SOCK_STREAM, address, port, options))
                attempt(f"udp {address}:53 {options}", lambda: bind(socket.SOCK_DGRAM, address, 53, options))
            for address in ("127.0.1.1", "127.0.1.2", "127.0.0.5", "::ffff:127.0.1.2"):
                for port in (80, 443, 8443):
                    attempt(f"tcp {address}:{port} {options}", lambda: bind(socket.SOCK_STREAM, address, port, options))
        attempt("lower the first free port", lambda: open("/proc/sys/net/ipv4/ip_unprivileged_port_start", "w"))
        """
    )
    text = outcome.stdout.decode()
    # Above 1023 no capability is missing: there it is the socket itself that is in the way.
    assert "blocked tcp 127.0.1.2:8443 ('SO_REUSEADDR', 'SO_REUSEPORT') OSError [Errno 98]" in text


async def the_network_cannot_be_changed(harness: Harness) -> None:
    await harness.attack(
        """
        SIOCSIFFLAGS, SIOCSIFADDR, SIOCADDRT = 0x8914, 0x8916, 0x890B
        import fcntl
        def ask(kind, flags, body, protocol=0):
            with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as s:
                s.bind((0, 0))
                s.send(struct.pack("=IHHII", 16 + len(body), kind, flags | 5, 1, 0) + body)
                answer = s.recv(8192)
                error = -struct.unpack_from("=i", answer, 16)[0]
                if error:
                    raise OSError(error, os.strerror(error))
        link = struct.pack("=BxHiII", 0, 0, 0, 1, 1)
        dummy = struct.pack("=HH4sHH8s", 8, 3, b"d0\\0\\0", 16, 18, struct.pack("=HH", 9, 1) + b"dum\\0")
        attempt("new link", lambda: ask(16, 0x600, link + dummy))
        attempt("loopback down", lambda: ask(16, 0, struct.pack("=BxHiII", 0, 0, 1, 0, 1)))
        def address(*parts):
            return struct.pack("=BBBBIHH4s", 2, 8, 0, 0, 1, 8, 2, bytes(parts))
        route = struct.pack("=BBBBBBBBIHHI", 2, 0, 0, 0, 254, 3, 253, 1, 0, 8, 4, 1)
        attempt("new address", lambda: ask(20, 0x600, address(10, 0, 0, 1)))
        attempt("no address", lambda: ask(21, 0, address(127, 0, 0, 1)))
        attempt("new route", lambda: ask(24, 0x600, route))
        def destroy(port):
            which = struct.pack(">HH", port, 0) + bytes(36) + b"\\xff" * 8
            ask(21, 0, struct.pack("=BBBBI", 2, 6, 0, 0, 1 << 10) + which, 4)
        attempt("destroy a listener", lambda: destroy(443))
        with socket.socket() as s:
            request = struct.pack("16sH22x", b"lo", 0)
            attempt("lo down", lambda: fcntl.ioctl(s, SIOCSIFFLAGS, request))
            attempt("bind to device", lambda: s.setsockopt(socket.SOL_SOCKET, 25, b"eth0\\0"))
            attempt("transparent", lambda: s.setsockopt(socket.IPPROTO_IP, 19, 1))
            attempt("mark", lambda: s.setsockopt(socket.SOL_SOCKET, 36, 1))
        attempt("new network", lambda: call(272, 0x40000000))
        attempt("new user namespace", lambda: call(272, 0x10000000))
        for path in ("/proc/1/ns/net", "/proc/self/ns/user"):
            attempt("enter " + path, lambda: call(308, os.open(path, os.O_RDONLY), 0))
        attempt("tun", lambda: os.open("/dev/net/tun", os.O_RDWR))
        attempt("sysctl", lambda: open("/proc/sys/net/ipv4/ip_forward", "w"))
        # Who opened the sockets is not here.
        others = [name for name in os.listdir("/proc") if name.isdigit() and int(name) not in (1, os.getpid())]
        commands = [open(f"/proc/{name}/cmdline").read() for name in others]
        if any("palyra" in each for each in commands):
            print("ESCAPED", commands)
        """
    )


async def the_network_is_one_calls_own(harness: Harness) -> None:
    """Two sandboxes at once: the sockets of one are not those of the other, and each ends with its own."""
    first, second = await asyncio.gather(*(harness.run("curl", "-sS", "http://allowed.example/") for _ in range(2)))
    assert first.stdout == second.stdout == HELLO
    assert [handle.connections for handle in harness.proxy.handles[-2:]] == [1, 1]
    assert all(handle.closed for handle in harness.proxy.handles)


ABSTRACT = f"palyra-door-{os.getpid()}"
ATTEMPTS: tuple[Callable[[Harness], Awaitable[None]], ...] = (
    allowed_hosts_work,
    nothing_else_is_reached,
    other_protocols_go_nowhere,
    listeners_cannot_be_bound_over,
    the_network_cannot_be_changed,
    the_network_is_one_calls_own,
)


@pytest.mark.parametrize("filtered", [True, False], ids=["with the filter", "without"])
@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda each: each.__name__)
async def test_as_this_user(attempt: Callable[[Harness], Awaitable[None]], filtered: bool, tmp_path: Path) -> None:
    await perform(attempt, filtered, tmp_path)


async def perform(attempt: Callable[[Harness], Awaitable[None]], filtered: bool, base: Path) -> None:
    with socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0" + ABSTRACT)
        abstract.listen()
        async with harness_in(base) as harness:
            if filtered:
                await attempt(harness)
            else:
                with mock.patch.object(sandbox_runner, "filter_of", lambda _: ALLOW_ALL):
                    await attempt(harness)


def test_as_an_ordinary_user(tmp_path: Path) -> None:
    done = run_as_ordinary_user(__file__, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == [each.__name__ for each in ATTEMPTS for _ in range(2)]


def main(base: Path) -> None:
    assert os.geteuid() != 0
    for attempt in ATTEMPTS:
        for filtered in (True, False):
            asyncio.run(perform(attempt, filtered, base))
            print(attempt.__name__, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
