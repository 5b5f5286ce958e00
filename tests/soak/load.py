"""The callers, so many at once and never more, each choosing its next story by its own seed."""

import threading
import traceback
from collections.abc import Callable
from contextlib import suppress

from fakes.star_of_networks import enter
from soak.caller import Caller
from soak.far_loads import FAR_KINDS
from soak.loads import KINDS
from soak.observations import OK, Observations
from soak.pace import GaveUp
from soak.settings import Plan
from soak.stack import Stack

STORIES: dict[str, tuple[int, Callable[[Caller], None]]] = {**KINDS, **FAR_KINDS}
# What has to have succeeded for everything to be said to work, one kind for each tier and each way through it, and the
# story that has it.
VITAL: dict[str, str] = {
    **{kind: kind for kind in ("echo", "read", "skill", "program", "background", "limited", "command_line", "fetch")},
    **{kind: kind for kind in ("budget", "token", "look", "secret", "browser")},
    "curl_page": "curl",
    "write": "approval",
    "worker_write": "approval",
    "worker": "on_worker",
    "worker_program": "on_worker",
    "worker_page": "on_worker",
    "browser_open": "browser",
}
_PAUSE_SECONDS = 0.12


class Load:
    def __init__(self, stack: Stack, plan: Plan, observed: Observations) -> None:
        self._stack = stack
        self._observed = observed
        self._plan = plan
        self._stop = threading.Event()
        self._callers = [Caller(stack, observed, f"a{number}", plan.seed) for number in range(plan.callers)]
        self._threads = [threading.Thread(target=self._work, args=(one,), name=one.name) for one in self._callers]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _work(self, caller: Caller) -> None:
        enter(self._stack.networks.near)
        names, weights = list(STORIES), [weight for weight, _ in STORIES.values()]
        while not self._stop.is_set():
            (name,) = caller.random.choices(names, weights)
            try:
                STORIES[name][1](caller)
            except Exception:
                self._observed.is_wrong(f"{name}: {traceback.format_exc(limit=-4)}")
            self._stack.pace.sleep(caller.random.uniform(0, 2 * _PAUSE_SECONDS), self._stop)
        caller.close()

    def works(self, since: float, seconds: float) -> list[str]:
        """Waits until every vital kind has succeeded after that moment; those that have not."""

        def missing() -> list[str]:
            return [kind for kind in VITAL if self._observed.last_success.get(kind, -1.0) <= since]

        with suppress(GaveUp):
            self._stack.pace.wait_for(lambda: not missing(), "every kind succeeds", seconds, every=0.5)
        return missing()


def warm_up(stack: Stack, plan: Plan, observed: Observations) -> None:
    """Every vital kind in turn, until each has gone well: a stack that does not work is not put under load."""
    caller = Caller(stack, observed, "first", plan.seed)
    begun = stack.pace.awake
    while missing := [kind for kind in VITAL if kind not in observed.last_success]:
        if stack.pace.awake - begun > 180:
            raise GaveUp(f"these do not work before anything was broken: {missing}; {observed.messages}")
        for kind in missing:
            STORIES[VITAL[kind]][1](caller)
    caller.close()
    assert observed.outcomes["echo"][OK]
