"""What is told to a service manager, on a real datagram socket."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.daemon import Place
from palyra.daemon.service_manager import ServiceManager, notify_ready


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(tmp_path / "notify"))
        bound.settimeout(30)
        yield bound


def received(listener: socket.socket) -> list[str]:
    return listener.recv(4096).decode().split("\n")


async def test_ready_alive_and_stopping_are_told_in_their_order(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", listener.getsockname())
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    async with notify_ready("listening\non 127.0.0.1") as manager:
        assert {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}.isdisjoint(os.environ)
        assert received(listener) == ["READY=1", "STATUS=listening on 127.0.0.1"]
        for _ in range(3):
            assert await asyncio.to_thread(received, listener) == ["WATCHDOG=1"]
        manager.status("half way")
    said = [received(listener)]
    while said[-1][0] != "STOPPING=1":
        said.append(received(listener))
    assert ["STATUS=half way"] in said


async def test_a_name_without_a_file_and_a_watchdog_for_somebody_else() -> None:
    name = f"palyra-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind("\0" + name)
        bound.settimeout(30)
        environ = {"NOTIFY_SOCKET": f"@{name}", "WATCHDOG_USEC": "10000", "WATCHDOG_PID": "1"}
        manager = ServiceManager.from_environment(environ)
        assert environ == {}
        await manager.keep_alive()
        manager.stopping()
        assert received(bound) == ["STOPPING=1", "STATUS=stopping"]


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": "relative"}, {"NOTIFY_SOCKET": "/nowhere/at/all"}])
async def test_nobody_who_listens_is_no_trouble(environ: dict[str, str]) -> None:
    manager = ServiceManager.from_environment({**environ, "WATCHDOG_USEC": "nonsense"})
    manager.ready("x")
    await manager.keep_alive()


@pytest.mark.promise("P-service")
def test_a_daemon_tells_when_it_listens_and_when_it_stops(listener: socket.socket, tmp_path: Path) -> None:
    place = Place(tmp_path / "place", "[daemon]\nport = 0\n")
    daemon = subprocess.Popen(
        [sys.executable, "-m", "palyra.cli.commands.up", "--json"],
        env={**place.environment, "NOTIFY_SOCKET": listener.getsockname(), "WATCHDOG_USEC": "60000000"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    listener.settimeout(60)
    ready, status = received(listener)
    assert ready == "READY=1" and status.startswith("STATUS=listening on http://127.0.0.1:")
    assert received(listener) == ["WATCHDOG=1"]
    daemon.send_signal(signal.SIGTERM)
    assert received(listener) == ["STOPPING=1", "STATUS=running calls end"]
    assert daemon.communicate(timeout=60)[1] == b"" and daemon.returncode == 0
