"""The egress proxy against tinyproxy, dante and mitmproxy: the same load on each in turn, in one run.

tinyproxy and dante come from Debian, mitmproxy from PyPI into an environment of its own. What cannot be had is shown as
missing. All of it listens on loopback only, and ends with the run.
"""

import contextlib
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import bars
from fakes import egress_proxy_main
from perf.peers import from_debian, from_pypi

NAME = "localhost"
BULK_MEBIBYTES = 512
BULK_ROUNDS = 5
RATE_ROUNDS = 7
EACH_ALONE, EACH_OF_MANY, MANY = 400, 60, 16
IDLE_TUNNELS = 10_000
# What a proxy with no place left would do is another test.
PLACES_LEFT = 100


class Proxy(msgspec.Struct, frozen=True):
    """A proxy that runs; ``port`` 0 is one that is missing."""

    name: str
    port: int = 0
    speaks: str = "connect"
    max_tunnels: int = 0


class Load:
    def __init__(self, program: Path, server_port: int) -> None:
        self._program = program
        self.server_port = server_port

    def bulk(self, proxy: Proxy) -> float:
        return self._run("bulk", proxy)[0]

    def connections(self, proxy: Proxy, clients: int, each: int) -> list[float]:
        """The rate, and the p50 and p99 of one connection in ms."""
        return self._run("connections", proxy, str(clients), str(each))

    def _run(self, what: str, proxy: Proxy, *more: str) -> list[float]:
        words = [what, str(proxy.port), str(self.server_port), proxy.speaks, NAME, *more]
        done = subprocess.run([self._program, *words], check=True, capture_output=True, text=True, timeout=300)
        return [float(word) for word in done.stdout.split()]


def run() -> list[dict[str, Any]]:
    with contextlib.ExitStack() as everything:
        folder = Path(everything.enter_context(tempfile.TemporaryDirectory()))
        program = _compiled(folder)
        server = everything.enter_context(_started([program, "serve", str(BULK_MEBIBYTES)], stdout=subprocess.PIPE))
        load = Load(program, int(_first_line(server)))

        def ours(name: str, speaks: str = "connect", *more: str) -> Proxy:
            line = everything.enter_context(_palyra(load.server_port, *more))
            return Proxy(name, line["port"], speaks, line["max_tunnels"])

        alone = ours("palyra")
        alone_socks = Proxy("palyra", alone.port, "socks")
        tinyproxy = everything.enter_context(_tinyproxy(folder))
        dante = everything.enter_context(_dante(folder))
        mitmproxy = everything.enter_context(_mitmproxy(folder))
        return [
            *_bulk(load, alone_socks, [(dante, bars.EGRESS_BULK_DANTE)]),
            *_bulk(load, alone, [(tinyproxy, bars.EGRESS_BULK_TINYPROXY), (mitmproxy, None)]),
            *_rates(
                load,
                1,
                EACH_ALONE,
                alone,
                [(tinyproxy, bars.EGRESS_ONE_TINYPROXY), (mitmproxy, bars.EGRESS_ONE_MITMPROXY)],
            ),
            *_rates(
                load,
                MANY,
                EACH_OF_MANY,
                alone,
                [(tinyproxy, bars.EGRESS_MANY_TINYPROXY), (mitmproxy, bars.EGRESS_MANY_MITMPROXY)],
            ),
            *_rates(load, MANY, EACH_OF_MANY, alone_socks, [(dante, bars.EGRESS_MANY_DANTE)]),
            _crowded(load, alone),
        ]


def _bulk(load: Load, ours: Proxy, peers: list[tuple[Proxy, Any]]) -> list[dict[str, Any]]:
    figures = _alternately(lambda proxy: [load.bulk(proxy)], [ours, *(peer for peer, _ in peers)], BULK_ROUNDS)
    mine = [each[0] for each in figures[ours]]
    return [
        _row(f"egress bulk, {ours.speaks}", "MB/s", mine, peer, [each[0] for each in figures[peer]], bar)
        for peer, bar in peers
    ]


def _rates(load: Load, clients: int, each: int, ours: Proxy, peers: list[tuple[Proxy, Any]]) -> list[dict[str, Any]]:
    proxies = [ours, *(peer for peer, _ in peers)]
    figures = _alternately(lambda proxy: load.connections(proxy, clients, each), proxies, RATE_ROUNDS)
    what = f"egress, {clients} client{'s' if clients > 1 else ''}, {ours.speaks}"
    rows = []
    for peer, bar in peers:
        mine, theirs = figures[ours], figures[peer]
        rows.append(_row(what, "conn/s", [line[0] for line in mine], peer, [line[0] for line in theirs], bar))
        latency = _row(what, "ms", [line[1] for line in mine], peer, [line[1] for line in theirs], None)
        latency["ours_p99"] = statistics.median(line[2] for line in mine)
        latency["peer_p99"] = statistics.median(line[2] for line in theirs) if theirs else None
        latency["samples"] = clients * each * len(mine)
        rows.append(latency)
    return rows


def _crowded(load: Load, ours: Proxy) -> dict[str, Any]:
    """The same proxy with thousands of idle tunnels, against itself without them."""
    before = [load.connections(ours, 1, EACH_ALONE)[0] for _ in range(RATE_ROUNDS)]
    count = min(IDLE_TUNNELS, ours.max_tunnels - PLACES_LEFT, _descriptors() - PLACES_LEFT)
    with contextlib.ExitStack() as tunnels:
        for _ in range(count):
            tunnels.enter_context(_idle_tunnel(ours.port, load.server_port))
        crowded = [load.connections(ours, 1, EACH_ALONE)[0] for _ in range(RATE_ROUNDS)]
    return _row(
        f"egress with {count} idle tunnels", "conn/s", crowded, Proxy("without them", 1), before, bars.EGRESS_CROWDED
    )


def _descriptors() -> int:
    """This process holds the clients' ends."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _idle_tunnel(proxy_port: int, server_port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", proxy_port))
    sock.sendall(f"CONNECT {NAME}:{server_port} HTTP/1.1\r\nHost: {NAME}:{server_port}\r\n\r\n".encode())
    if b" 200 " not in sock.recv(4096):
        raise RuntimeError("the proxy refused an idle tunnel")
    return sock


def _alternately(
    measure: Callable[[Proxy], list[float]], proxies: list[Proxy], rounds: int
) -> dict[Proxy, list[list[float]]]:
    """One round to warm up, then each in turn; a proxy that is missing has no figures."""
    figures: dict[Proxy, list[list[float]]] = {proxy: [] for proxy in proxies}
    for number in range(rounds + 1):
        for proxy in proxies:
            if proxy.port:
                figure = measure(proxy)
                if number:
                    figures[proxy].append(figure)
    return figures


def _row(name: str, unit: str, ours: list[float], peer: Proxy, theirs: list[float], bar: Any) -> dict[str, Any]:
    mine = statistics.median(ours)
    other = statistics.median(theirs) if theirs else None
    return {
        "name": name,
        "ours_p50": mine,
        "ours_p99": None,
        "peer": peer.name if peer.port else f"{peer.name} (missing)",
        "peer_p50": other,
        "peer_p99": None,
        "ratio": None if other is None else mine / other,
        "samples": len(ours),
        "bar": bar,
        "unit": unit,
    }


@contextlib.contextmanager
def _started(command: list[Any], **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdout, process.stdin):
            if stream is not None:
                stream.close()


def _first_line(process: "subprocess.Popen[bytes]") -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def _compiled(folder: Path) -> Path:
    program = folder / "egress_load"
    source = Path(__file__).with_name("egress_load.c")
    subprocess.run(["gcc", "-O2", "-pthread", "-o", program, source], check=True)
    return program


@contextlib.contextmanager
def _palyra(server_port: int, *more: str) -> Iterator[dict[str, Any]]:
    site = f"{NAME}:{server_port}"
    words = ["--allow", site, "--private-target", site, "--static", f"{NAME}=127.0.0.1", "--until-input-ends"]
    words += ["--max-tunnels", "100000", *more]
    command = [sys.executable, egress_proxy_main.__file__, *words]
    with _started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield json.loads(_first_line(process))


@contextlib.contextmanager
def _tinyproxy(folder: Path) -> Iterator[Proxy]:
    program = from_debian("tinyproxy")
    port = _free_port()
    config = folder / "tinyproxy.conf"
    log = folder / "tinyproxy.log"
    config.write_text(
        f"Port {port}\nListen 127.0.0.1\nTimeout 600\nMaxClients 1000\nDisableViaHeader Yes\n"
        f'LogLevel Critical\nLogFile "{log}"\n'
    )
    with _peer(Proxy("tinyproxy", port), program and [program, "-d", "-c", config]) as proxy:
        yield proxy


@contextlib.contextmanager
def _dante(folder: Path) -> Iterator[Proxy]:
    program = from_debian("danted")
    port = _free_port()
    config = folder / "dante.conf"
    users = "user.privileged: root\nuser.unprivileged: nobody\n" if os.geteuid() == 0 else ""
    config.write_text(
        f"logoutput: {folder}/dante.log\ninternal: 127.0.0.1 port = {port}\nexternal: lo\n"
        f"clientmethod: none\nsocksmethod: none\n{users}"
        "client pass { from: 127.0.0.0/8 to: 0.0.0.0/0 }\nsocks pass { from: 127.0.0.0/8 to: 0.0.0.0/0 }\n"
    )
    with _peer(Proxy("dante", port, "socks"), program and [program, "-f", config]) as proxy:
        yield proxy


@contextlib.contextmanager
def _mitmproxy(folder: Path) -> Iterator[Proxy]:
    """Told to pass everything through: reading it would cost more still."""
    program = from_pypi("mitmproxy", "mitmdump")
    port = _free_port()
    words = ["--quiet", "--listen-host", "127.0.0.1", "--listen-port", str(port), "--ignore-hosts", ".*"]
    settings = ["--set", f"confdir={folder / 'mitmproxy'}"]
    with _peer(Proxy("mitmproxy", port), program and [program, *words, *settings]) as proxy:
        yield proxy


@contextlib.contextmanager
def _peer(proxy: Proxy, command: list[Any] | None) -> Iterator[Proxy]:
    if not command:
        print(f"{proxy.name} is missing", file=sys.stderr)
        yield Proxy(proxy.name)
        return
    with _started(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", proxy.port)):
                break
            if process.poll() is not None:
                print(f"{proxy.name} does not start", file=sys.stderr)
                yield Proxy(proxy.name)
                return
            time.sleep(0.1)
        yield proxy


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port
