"""Many calls on a fleet at once, from threads in the daemon's network, and what became of each."""

import queue
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from fakes.daemon import Daemon
from fakes.eventually import eventually_sync
from fakes.star_of_networks import enter
from fakes.two_networks import Network
from palyra.client.protocol import ApiError

CALLERS = 24
# Long enough for a call whose first worker is lost to run on another.
TIMEOUT_MS = 90_000


class PlannedCall(msgspec.Struct, frozen=True):
    number: int
    tool: str
    arguments: dict[str, Any]
    idempotent: bool


def mixed(count: int) -> list[PlannedCall]:
    """Mostly cheap ones; some that write a file which comes back, and some that run for a moment."""
    made = []
    for number in range(count):
        if number % 25 == 7:
            arguments: dict[str, Any] = {"command": "sleep", "args": ["0.4"]}
            made.append(PlannedCall(number, "process.run", arguments, idempotent=False))
        elif number % 25 == 13:
            made.append(PlannedCall(number, "sleep", {"seconds": 1}, idempotent=True))
        elif number % 3 == 0:
            arguments = {"path": f"made/{number}.txt", "content": f"by call {number}"}
            made.append(PlannedCall(number, "fs.write", arguments, idempotent=False))
        else:
            made.append(PlannedCall(number, "echo", {"text": f"call {number}"}, idempotent=True))
    return made


class FleetLoad:
    """Runs them, ``CALLERS`` at a time. ``documents`` has each call as the API returned it, by its number."""

    def __init__(self, daemon: Daemon, network: Network, planned: list[PlannedCall]) -> None:
        self.documents: dict[int, dict[str, Any]] = {}
        self.failed: list[BaseException] = []
        self._daemon = daemon
        self._network = network
        self._planned: queue.SimpleQueue[PlannedCall] = queue.SimpleQueue()
        for one in planned:
            self._planned.put(one)
        self._count = len(planned)
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(CALLERS)]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        try:
            enter(self._network)
            with self._daemon.client() as client:
                while True:
                    try:
                        one = self._planned.get_nowait()
                    except queue.Empty:
                        return
                    try:
                        call = client.call(one.tool, one.arguments, tier="worker", timeout_ms=TIMEOUT_MS)
                    except ApiError as error:
                        assert error.call is not None, error
                        call = error.call
                    self.documents[one.number] = call.document
        except BaseException as error:
            self.failed.append(error)

    def reaches(self, share: float, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Waits until this share of the calls has ended."""

        def ended() -> bool:
            meanwhile()
            return bool(self.failed) or len(self.documents) >= share * self._count

        eventually_sync(ended, seconds=240)
        assert not self.failed, self.failed

    def wait(self) -> dict[int, dict[str, Any]]:
        self.reaches(1.0)
        for thread in self._threads:
            thread.join(60)
        return self.documents
