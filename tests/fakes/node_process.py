"""A real node host process on a folder of its own, and the steps a person takes to pair it."""

import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fakes.daemon import PALYRA, Place
from fakes.eventually import eventually_sync
from fakes.started_warm import start_palyra

# Small intervals: a lost link is seen within a second or two.
DAEMON_SETTINGS = """
[nodes]
heartbeat_seconds = 0.3
heartbeat_timeout_seconds = 1.5
[tools]
preapproved = ["node.invoke"]
"""
DEVICE_SETTINGS = """
[node]
ask = []
"""
_COMPARISON = re.compile(r"shows the code (\d{6})")


class NodeProcess:
    """``said`` is what it prints for its person, as it comes."""

    def __init__(self, place: Place, *arguments: str) -> None:
        self.said = ""
        self.process = start_palyra(
            [*place.through, *PALYRA, "node", "run", *arguments],
            env=place.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line

    def says(self, words: str, *, seconds: float = 60.0) -> None:
        try:
            eventually_sync(lambda: words in self.said or self.process.poll() is not None, seconds=seconds)
        except AssertionError:
            raise AssertionError(f"{words!r} was not said: {self.said}") from None
        assert words in self.said, f"it ended with {self.process.poll()}: {self.said}"

    @property
    def comparison_code(self) -> str:
        self.says("shows the code")
        found = _COMPARISON.search(self.said)
        assert found is not None
        return found[1]

    def kill(self) -> None:
        """As a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        status = self.process.wait(60)
        self._reader.join(30)
        if self.process.stderr is not None:
            self.process.stderr.close()
        return status


def make_code(daemon: Place, method: str = "pin", **options: str) -> dict[str, Any]:
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    made = daemon.palyra("pair", "code", "--method", method, *words, "--json")
    assert made.status == 0, made.stdout + made.stderr
    document: dict[str, Any] = made.data
    return document


def code_arguments(made: dict[str, Any]) -> tuple[str, ...]:
    """As the command at the daemon says them."""
    if made["method"] == "qr":
        return ("--code", made["code"])
    return ("--server", made["addresses"][0], "--code", made["code"])


def pending(daemon: Place) -> list[dict[str, Any]]:
    listed = daemon.palyra("pair", "list", "--state", "pending_approval", "--json")
    found: list[dict[str, Any]] = listed.data["pairings"]
    return found


def approve(daemon: Place, comparison_code: str) -> dict[str, Any]:
    """As a careful person does: only the request that has the digits of the device."""
    (request,) = [one for one in pending(daemon) if one["comparison_code"] == comparison_code]
    done = daemon.palyra("pair", "approve", request["id"], "--compare", comparison_code, "--json")
    assert done.status == 0, done.stdout
    return request


@contextmanager
def node_process(place: Place, *arguments: str) -> Iterator[NodeProcess]:
    node = NodeProcess(place, *arguments)
    try:
        yield node
    finally:
        node.stop()


def node_state(daemon: Place) -> str:
    """Of the only device: online, offline or revoked."""
    (node,) = daemon.palyra("node", "list", "--json").data["nodes"]
    return str(node["state"])
