"""What MCP adds to a call over the HTTP API, and how long a client waits for its first tool list."""

import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import bars
from fakes.daemon import Daemon, Place

SAMPLES = 200
STARTS = 15
COLD_STARTS = 9
VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def run() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder), "[budget]\ncalls = 1000000\nwall_ms = 1000000000000\n")
        with place.daemon() as daemon, daemon.client() as owner:
            token = owner.create_token("agent:bench").token.reveal()
            with _Lines(place) as lines:
                # The first client of all waits for the library too; what comes after is what people see.
                first = lines.ask("tools/list", {})
                assert first["result"]["tools"]
                stdio = _timed(lambda: lines.ask("tools/call", _ECHO))
            api = _timed(_posting(daemon, token, "/v1/tool-calls", _api_body))
            protocol = _timed(_posting(daemon, token, "/mcp", _protocol_body))
            starts = [_first_listing(place) for _ in range(STARTS)]
        cold = [_first_listing_of_all(Path(folder) / f"cold-{number}") for number in range(COLD_STARTS)]
    return [
        _row("MCP on stdio: echo", stdio, api, bars.MCP_STDIO),
        _row("MCP over HTTP: echo", protocol, api, bars.MCP_HTTP),
        _row("MCP on stdio: from start to the first tool list", starts, None, bars.MCP_START),
        _row("MCP on stdio: the same where no daemon runs", cold, None, bars.MCP_COLD),
    ]


_ECHO = {"name": "echo", "arguments": {"text": "hi"}}


def _api_body(_number: int) -> dict[str, Any]:
    return {"tool": "echo", "arguments": {"text": "hi"}}


def _protocol_body(number: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {**_ECHO, "_meta": META}}


def _posting(daemon: Daemon, token: str, path: str, body: Callable[[int], dict[str, Any]]) -> Callable[[], None]:
    connection = http.client.HTTPConnection(daemon.url.removeprefix("http://"))
    headers = {
        "authorization": f"Bearer {token}",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": VERSION,
        "mcp-method": "tools/call",
        "mcp-name": "echo",
    }
    number = 0

    def post() -> None:
        nonlocal number
        number += 1
        connection.request("POST", path, json.dumps(body(number)), headers)
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200 and b"hi" in text, text

    return post


class _Lines:
    """A client on stdio that does as little as a client can."""

    def __init__(self, place: Place) -> None:
        self._program = subprocess.Popen(
            [sys.executable, "-m", "palyra.cli.main", "mcp"],
            env=dict(place.environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._number = 0

    def __enter__(self) -> "_Lines":
        return self

    def __exit__(self, *_exception: object) -> None:
        assert self._program.stdin is not None and self._program.stdout is not None
        self._program.stdin.close()
        self._program.wait(60)
        self._program.stdout.close()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert self._program.stdin is not None and self._program.stdout is not None
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": {**params, "_meta": META}}
        self._program.stdin.write(json.dumps(message).encode() + b"\n")
        self._program.stdin.flush()
        answer: dict[str, Any] = json.loads(self._program.stdout.readline())
        assert answer["id"] == self._number and "result" in answer, answer
        return answer


def _first_listing(place: Place) -> float:
    since = time.perf_counter()
    with _Lines(place) as lines:
        lines.ask("tools/list", {})
        return time.perf_counter() - since


def _first_listing_of_all(root: Path) -> float:
    """In a place where nothing has run yet: keys, database and daemon are made on the way."""
    place = Place(root)
    taken = _first_listing(place)
    daemon = json.loads((place.state / "daemon.json").read_text())["pid"]
    os.kill(daemon, signal.SIGTERM)
    while _runs(daemon):
        time.sleep(0.05)
    return taken


def _runs(pid: int) -> bool:
    """Not ended, and not waiting to be reaped by whoever inherited it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _timed(work: Callable[[], Any]) -> list[float]:
    for _ in range(20):
        work()
    found = []
    for _ in range(SAMPLES):
        since = time.perf_counter()
        work()
        found.append(time.perf_counter() - since)
    return found


def _row(name: str, ours: list[float], peer: list[float] | None, bar: Any) -> dict[str, Any]:
    ours_p50, ours_p99 = _percentiles(ours)
    peer_p50, peer_p99 = _percentiles(peer) if peer else (None, None)
    return {
        "name": name,
        "ours_p50": ours_p50,
        "ours_p99": ours_p99,
        "peer": "the same call over the HTTP API" if peer else "-",
        "peer_p50": peer_p50,
        "peer_p99": peer_p99,
        "ratio": None if peer_p50 is None else ours_p50 / peer_p50,
        "samples": len(ours),
        "bar": bar,
        "unit": "ms",
    }


def _percentiles(seconds: list[float]) -> tuple[float, float]:
    ordered = sorted(seconds)
    return statistics.median(ordered) * 1000, ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000
