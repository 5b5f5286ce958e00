"""One of those that make calls: a thread in the daemon's network with choices of its own."""

import random
import threading
import time
from typing import Any

import msgspec

from fakes.star_of_networks import enter
from palyra.client.client import Client
from palyra.client.protocol import ApiError, NeedsApprovalError
from palyra.client.views import CallView
from palyra.errors import PalyraError
from soak.observations import OK, Observations
from soak.stack import Stack

# Calls that share one run and its budget.
CALLS_PER_RUN = 60
TIMEOUT_MS = 40_000
NEEDS_APPROVAL = "needs_approval"
# The daemon is away, or starts: whoever calls waits a moment instead of asking thousands of times.
_AWAY = frozenset(("client.connect_failed", "client.connection_lost", "daemon.stopping"))


class Ended(msgspec.Struct, frozen=True):
    """``code`` is OK, that an approval is needed, or the error's."""

    code: str
    call: CallView | None = None
    approval_id: str = ""

    @property
    def result(self) -> Any:
        return None if self.call is None else self.call.result


class Caller:
    def __init__(self, stack: Stack, observed: Observations, name: str, seed: int) -> None:
        self.stack = stack
        self.observed = observed
        self.name = name
        self.principal = f"agent:{name}"
        self.random = random.Random(f"{seed} {name}")
        self.run_id: str | None = None
        self._left = 0
        self._number = 0
        self._client: Client | None = None
        self._life = -1

    def unique(self) -> str:
        self._number += 1
        return f"{self.name}-{self._number}"

    @property
    def client(self) -> Client:
        """Of the daemon that lives now."""
        if self._client is None or self._life != self.stack.home.life:
            self.close()
            self._life = self.stack.home.life
            self._client = self.stack.home.client()
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def call(self, kind: str, tool: str, arguments: dict[str, Any], **options: Any) -> Ended:
        """Makes a call and notes what became of it. In this caller's run unless another is named."""
        if "run_id" not in options:
            options["run_id"] = self._run()
        given = {"principal": self.principal, "timeout_ms": TIMEOUT_MS, **options}
        return self.noted(kind, lambda: self.client.call(tool, arguments, **given))

    def noted(self, kind: str, act: Any) -> Ended:
        begun, message = time.monotonic(), ""
        try:
            answer = act()
            ended = Ended(OK, answer if isinstance(answer, CallView) else None)
        except NeedsApprovalError as error:
            ended = Ended(NEEDS_APPROVAL, error.call, error.approval_id)
        except ApiError as error:
            ended, message = Ended(str(error.as_dict()["code"]), error.call), error.message
        except PalyraError as error:
            ended, message = Ended(str(error.as_dict()["code"])), error.message
        self.observed.note(kind, ended.code, time.monotonic() - begun, self.stack.pace.awake, message)
        if ended.call is not None:
            self.observed.saw(kind, ended.call.document)
        if ended.code in _AWAY:
            time.sleep(0.3)
        return ended

    def _run(self) -> str | None:
        """A new one from time to time; while the daemon is away none."""
        if self._left <= 0 or self.run_id is None:
            try:
                self.run_id = self.client.start_run(principal=self.principal).run_id
                self._left = CALLS_PER_RUN
            except PalyraError:
                return None
        self._left -= 1
        return self.run_id

    def beside(self, *acts: Any) -> None:
        """Does several things at once, each in a thread in the daemon's network."""

        def within(act: Any) -> None:
            enter(self.stack.networks.near)
            act()

        threads = [threading.Thread(target=within, args=(act,)) for act in acts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
