"""The person at the daemon: decides requests that callers wait for, lets workers out of quarantine, closes sessions
that nobody uses any more."""

import random
import threading
from collections import Counter

from fakes.star_of_networks import enter
from palyra.client.client import Client
from palyra.errors import PalyraError
from soak.stack import Stack

_LOOK_SECONDS = 0.4
# Sessions that callers forgot: a person closes one when there are more.
_MOST_SESSIONS = 4


class Operator:
    def __init__(self, stack: Stack, seed: int) -> None:
        self.did: Counter[str] = Counter()
        self._stack = stack
        self._random = random.Random(f"{seed} operator")
        self._seen: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="operator")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        enter(self._stack.networks.near)
        while not self._stop.is_set():
            try:
                with self._stack.home.client() as client:
                    self._decide(client)
                    self._release(client)
                    self._close(client)
            except PalyraError:
                self.did["could not look"] += 1
            self._stack.pace.sleep(_LOOK_SECONDS, self._stop)

    def _decide(self, client: Client) -> None:
        for request in client.approvals():
            path = (request.arguments or {}).get("path", "")
            if request.id in self._seen or not path.startswith("made/wait-"):
                continue
            self._seen.add(request.id)
            choice = self._random.random()
            try:
                if choice < 0.6:
                    client.approve(request.id, argument_digest=request.argument_digest)
                    self.did["approved"] += 1
                elif choice < 0.8:
                    client.deny(request.id)
                    self.did["denied"] += 1
                else:
                    self.did["let expire"] += 1
            except PalyraError as error:
                self.did[f"decision refused: {error.as_dict()['code']}"] += 1

    def _release(self, client: Client) -> None:
        for worker in client.workers():
            if worker.state == "quarantined":
                client.change_worker(worker.worker_id, "release", reason="the soak goes on")
                self.did[f"released from quarantine: {worker.reason}"] += 1

    def _close(self, client: Client, most: int = _MOST_SESSIONS) -> None:
        if self._random.random() > 0.1 and most:
            return
        sessions = sorted(client.browser_sessions(), key=lambda one: one.created_ms)
        for session in sessions[: max(0, len(sessions) - most)]:
            client.change_browser_session(session.session_id, "close")
            self.did["closed a session"] += 1

    def close_all(self) -> None:
        """Called in the daemon's network, at the end."""
        with self._stack.home.client() as client:
            self._close(client, 0)
