"""Real palyra-workerd processes on folders of their own, and the steps a person takes to have them join."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fakes.daemon import Answer, Place
from fakes.eventually import eventually_sync
from fakes.node_process import approve, code_arguments, make_code

WORKERD = (sys.executable, "-m", "palyra.cli.workerd")
DAEMON_SETTINGS = """
[workers]
require_egress_binding = false
heartbeat_seconds = 0.3
heartbeat_timeout_seconds = 3.0
[tools]
allowed = ["*"]
preapproved = ["*"]
"""


class WorkerProcess:
    """``said`` is what it prints for whoever watches, as it comes."""

    def __init__(self, place: Place, *arguments: str, program: tuple[str, ...] = WORKERD) -> None:
        self.said = ""
        self.process = subprocess.Popen(
            [*place.through, *program, *arguments],
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

    def says(self, words: str, *, times: int = 1, seconds: float = 60.0) -> None:
        def said() -> bool:
            return self.said.count(words) >= times or self.process.poll() is not None

        try:
            eventually_sync(said, seconds=seconds)
        except AssertionError:
            raise AssertionError(f"{words!r} was not said: {self.said}") from None
        assert self.said.count(words) >= times, f"it ended with {self.process.poll()}: {self.said}"

    def kill(self) -> None:
        """As a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        status = self.process.wait(90)
        self._reader.join(30)
        if self.process.stderr is not None:
            self.process.stderr.close()
        return status


@contextmanager
def worker_process(place: Place, *arguments: str) -> Iterator[WorkerProcess]:
    worker = WorkerProcess(place, "run", *arguments)
    try:
        yield worker
    finally:
        worker.stop()


def workerd(place: Place, *arguments: str) -> Answer:
    """One command line of palyra-workerd."""
    return Answer(
        subprocess.run(
            [*place.through, *WORKERD, *arguments],
            env=place.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    )


def join(daemon: Place, place: Place, *, method: str = "pin") -> str:
    """Pairs a worker with a running daemon; its id."""
    made = make_code(daemon, method, kind="worker")
    joining = WorkerProcess(place, "join", *code_arguments(made))
    joining.says("shows the code")
    digits = joining.said.partition("shows the code ")[2][:6]
    approve(daemon, digits)
    assert joining.wait() == 0, joining.said
    return str(workerd(place, "status", "--json").data["worker_id"])


def worker_state(daemon: Place, worker_id: str) -> dict[str, Any]:
    shown = daemon.palyra("worker", "show", worker_id, "--json")
    assert shown.status == 0, shown.stdout + shown.stderr
    document: dict[str, Any] = shown.data
    return document
