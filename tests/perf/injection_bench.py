"""Putting a credential into https requests on their way: our proxy and mitmproxy, with the same client and server.

The client is curl with one connection for all its requests; the server a small TLS server in a process of its own.
"""

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import bars
from fakes.certificates import make_certificate
from perf.peers import from_pypi

REQUESTS = 400
ROUNDS = 5
NAME = "api.test"
TOKEN = "tok-for-the-benchmark"
PEER = "mitmproxy"

_SERVER = """
import asyncio, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1])
BODY = b"x" * 1024
REPLY = b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(BODY) + BODY

async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            good = b"tok-for-the-benchmark" in head
            writer.write(REPLY if good else b"HTTP/1.1 401 No\\r\\nContent-Length: 0\\r\\n\\r\\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""

_OURS = """
import asyncio, datetime, json, socket, ssl, sys
from palyra.egress.domain.credential import CredentialBindingPlan
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.proxy.server import EgressProxy, ListeningSocket
from palyra.egress.domain.rules import parse_rules
from palyra.egress.proxy.termination import CredentialTermination
from palyra.secret import Secret

name, port, authority, bundle = sys.argv[1:]

class Names:
    async def resolve(self, host):
        return ("127.0.0.1",)

class Secrets:
    async def reveal(self, grant, secret_ref, target):
        return Secret("tok-for-the-benchmark")

class Nobody:
    def observe(self, grant, event):
        pass

async def main():
    rules = parse_rules((f"{name}:{port}",))
    binding = CredentialBindingPlan(
        header_name="Authorization", secret_ref="global/t", hosts=(f"{name}:{port}",), prefix="Bearer "
    )
    grant = EgressGrant(
        grant_id="g", principal="agent:a", run="r", call="c", tool="t", rules=rules, private_targets=rules,
        bindings=(binding,), max_bytes=1 << 40,
    )
    trust = lambda: ssl.create_default_context(cafile=authority)
    termination = CredentialTermination(Secrets(), trust=trust, now=lambda: datetime.datetime.now(datetime.UTC))
    open(bundle, "wb").write(termination.authority(grant).pem())
    proxy = EgressProxy(EgressProxyPolicyService(frozenset), Names(), Nobody(), termination=termination)
    listening = socket.create_server(("127.0.0.1", 0))
    proxy.open_listener(grant, [ListeningSocket(kind="proxy", socket=listening)])
    print(listening.getsockname()[1], flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def run() -> list[dict[str, Any]]:
    mitmdump = from_pypi(PEER, "mitmdump")
    if mitmdump is None or shutil.which("curl") is None:
        return [_row(None, None, f"{PEER} (missing)" if mitmdump is None else "curl (missing)")]
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        make_certificate(base, (NAME,))
        with (
            _started([sys.executable, "-c", _SERVER, str(base / "host.pem")]) as server,
            _ours(base, server) as ours,
            _theirs(base, server, mitmdump) as theirs,
        ):
            mine, other = [], []
            for _ in range(ROUNDS + 1):
                mine.append(_rate(["--proxy", f"http://127.0.0.1:{ours}"], base / "run.pem", server))
                there = ["--resolve", f"{NAME}:{theirs}:127.0.0.1"]
                other.append(_rate(there, base / "mitm" / "mitmproxy-ca-cert.pem", theirs))
    p50, peer = statistics.median(mine[1:]), statistics.median(other[1:])
    return [_row(p50, peer, PEER)]


def _row(ours: float | None, theirs: float | None, peer: str) -> dict[str, Any]:
    return {
        "name": "https requests with an injected credential",
        "ours_p50": ours,
        "ours_p99": None,
        "peer": peer,
        "peer_p50": theirs,
        "peer_p99": None,
        "ratio": ours / theirs if ours and theirs else None,
        "samples": ROUNDS * REQUESTS,
        "bar": bars.INJECTION,
        "unit": "requests/s",
    }


@contextlib.contextmanager
def _started(words: list[str]) -> Iterator[int]:
    """A process that prints its port."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def _ours(base: Path, server: int) -> Iterator[int]:
    words = [sys.executable, "-c", _OURS, NAME, str(server), str(base / "authority.pem"), str(base / "run.pem")]
    with _started(words) as port:
        yield port


@contextlib.contextmanager
def _theirs(base: Path, server: int, mitmdump: str) -> Iterator[int]:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = {
        "confdir": base / "mitm",
        "ssl_verify_upstream_trusted_ca": base / "authority.pem",
        "http2": "false",
    }
    # In front of the one server, because the benchmark's name is nobody's: it does not even have to read a CONNECT.
    words = [mitmdump, "-q", "--listen-host", "127.0.0.1", "--listen-port", str(port)]
    words += ["--mode", f"reverse:https://127.0.0.1:{server}", "--modify-headers", f"/Authorization/Bearer {TOKEN}"]
    for name, value in options.items():
        words += ["--set", f"{name}={value}"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.1)
        yield port
    finally:
        process.kill()
        process.wait()


def _rate(way: list[str], authority: Path, port: int) -> float:
    """Requests a second. Every one must have been let in by the server."""
    words = ["curl", "-sS", "--max-time", "60", *way, "--cacert", str(authority), "-o", "/dev/null"]
    words += ["-w", "%{http_code}\\n", f"https://{NAME}:{port}/[1-{REQUESTS}]"]
    since = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - since
    if done.stdout.split() != ["200"] * REQUESTS:
        raise RuntimeError(f"not every request was answered: {json.dumps(done.stdout.split()[:3])} {done.stderr}")
    return REQUESTS / seconds
