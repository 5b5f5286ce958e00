"""What goes wrong, one thing after another: chosen by the seed, done, held for a while, mended."""

import os
import random
import signal
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from fakes.processes import descendants
from fakes.star_of_networks import enter
from palyra.client.protocol import ApiError
from soak.pace import GaveUp
from soak.settings import Plan
from soak.stack import START_SECONDS, Machine, Stack
from soak.watch import words_of

_PAUSE_SECONDS = (3.0, 9.0)
# Bytes that a full disk has left: some calls still get through, then none does.
_SPARE_BYTES = (0, 16_384, 262_144)
_ENDS_OF_DAEMON = ("daemon_killed", "daemon_stopped")
_CLOCK_JUMPS = (90, -90, 700, -700, 3_600, -3_600)


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """``recovered`` is how long it took from the end of the fault until the daemon took calls again."""

    kind: str
    at: float
    held: float
    recovered: float
    detail: str = ""


class Faults:
    def __init__(self, stack: Stack, plan: Plan) -> None:
        self.done: list[Fault] = []
        self.failed: list[str] = []
        self._stack = stack
        self._plan = plan
        self._random = random.Random(f"{plan.seed} faults")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="faults")
        self._all: dict[str, tuple[int, Callable[[], str]]] = {
            "daemon_killed": (3, self._kill_daemon),
            "daemon_stopped": (1, self._restart_daemon),
            "daemon_stalled": (1, self._stall_daemon),
            "worker_killed": (3, self._kill_worker),
            "worker_stopped": (1, self._restart_worker),
            "worker_drained": (2, self._drain_worker),
            "worker_quarantined": (1, self._quarantine_worker),
            "worker_replaced": (1, self._replace_worker),
            "proxy_killed": (2, self._kill_proxy),
            "browserd_killed": (2, self._kill_browserd),
            "chromium_killed": (2, self._kill_chromium),
            "wasm_worker_killed": (1, self._kill_wasm_worker),
            "partition": (3, self._cut_wire),
            "disk_full": (2, self._fill_disk),
            "clock_jump": (2, self._move_clock),
        }

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        enter(self._stack.networks.near)
        pace = self._stack.pace
        pace.sleep(min(10.0, self._plan.seconds * 0.1), self._stop)
        waiting: list[str] = []
        while not self._stop.is_set():
            waiting = waiting or self._order()
            kind = waiting.pop()
            if self._is_long_life() and kind in _ENDS_OF_DAEMON:
                continue
            self._one(kind)
            pace.sleep(self._random.uniform(*_PAUSE_SECONDS), self._stop)

    def _order(self) -> list[str]:
        """Every kind as often as it weighs, in a new order each time: short runs see all of them too."""
        kinds = [kind for kind, (weight, _) in self._all.items() for _ in range(weight)]
        chosen = [kind for kind in kinds if not self._plan.faults or kind in self._plan.faults]
        self._random.shuffle(chosen)
        # One of each first, and those of the daemon before the others: a short run has at least that.
        first = sorted(set(chosen), key=lambda kind: (kind in _ENDS_OF_DAEMON, chosen.index(kind)))
        for kind in first:
            chosen.remove(kind)
        return [*chosen, *first]

    def _is_long_life(self) -> bool:
        return self._stack.pace.awake > self._plan.seconds - self._plan.long_life_seconds

    def _one(self, kind: str) -> None:
        pace = self._stack.pace
        begun, detail = pace.awake, ""
        try:
            detail = self._all[kind][1]()
            ended = pace.awake
            recovered = pace.wait_for(self._stack.is_ready, f"the daemon is ready after {kind}", START_SECONDS)
            self.done.append(Fault(kind=kind, at=begun, held=ended - begun, recovered=recovered, detail=detail))
            print(f"{begun:7.1f}  {kind} {detail} ({ended - begun:.1f} s, back in {recovered:.1f} s)", flush=True)
        except Exception as error:
            self.failed.append(f"{kind} {detail}: {type(error).__name__}: {error}")
            print(f"{begun:7.1f}  {kind} FAILED: {error}", flush=True)

    def _hold(self, least: float, most: float) -> None:
        self._stack.pace.sleep(self._random.uniform(least, most), self._stop)

    # The daemon and what it has beside it.

    def _kill_daemon(self) -> str:
        home = self._stack.home
        with home.lock:
            home.kill()
            self._hold(0.0, 3.0)
            return f"up in {home.start():.1f} s"

    def _restart_daemon(self) -> str:
        home = self._stack.home
        with home.lock:
            status = home.stop()
            if status != 0:
                raise GaveUp(f"the daemon ended with {status} when it was asked to")
            return f"up in {home.start():.1f} s"

    def _stall_daemon(self) -> str:
        pid = self._stack.home.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            self._hold(2.0, 7.0)
        finally:
            os.kill(pid, signal.SIGCONT)
        return ""

    def _kill_browserd(self) -> str:
        return self._kill_below(lambda words: "palyra.cli.browserd" in words)

    def _kill_chromium(self) -> str:
        return self._kill_below(lambda words: "headless" in words and "chrom" in words)

    def _kill_wasm_worker(self) -> str:
        return self._kill_below(lambda words: "palyra.wasm.process.fork_server_main" in words)

    def _kill_below(self, wanted: Callable[[str], bool]) -> str:
        found = [pid for pid in sorted(descendants(self._stack.home.pid)) if wanted(words_of(pid))]
        if not found:
            return "none was there"
        pid = self._random.choice(found)
        os.kill(pid, signal.SIGKILL)
        return f"one of {len(found)}"

    # Machines of the fleet.

    def _machine(self) -> Machine:
        return self._random.choice(self._stack.machines)

    def _kill_worker(self) -> str:
        machine = self._machine()
        machine.end_worker(signal.SIGKILL)
        self._hold(0.0, 8.0)
        machine.start_worker()
        return f"machine {machine.number}"

    def _restart_worker(self) -> str:
        machine = self._machine()
        machine.end_worker(signal.SIGTERM)
        machine.start_worker()
        return f"machine {machine.number}"

    def _kill_proxy(self) -> str:
        machine = self._machine()
        machine.end_proxy(signal.SIGKILL)
        self._hold(0.0, 5.0)
        machine.start_proxy()
        return f"machine {machine.number}"

    def _drain_worker(self) -> str:
        machine = self._machine()
        self._change(machine, "drain")
        self._hold(1.0, 5.0)
        self._change(machine, "resume")
        return f"machine {machine.number}"

    def _quarantine_worker(self) -> str:
        """The person at the daemon lets it out again."""
        machine = self._machine()
        self._change(machine, "quarantine")
        return f"machine {machine.number}"

    def _replace_worker(self) -> str:
        machine = self._machine()
        machine.replace()
        return f"machine {machine.number}"

    def _change(self, machine: Machine, change: str) -> None:
        """It may have come into another state by itself since it was looked at: quarantined, and released."""
        try:
            with self._stack.home.client() as client:
                client.change_worker(machine.worker_id, change, reason="the soak")
        except ApiError as error:
            if error.as_dict()["code"] != "worker.wrong_state":
                raise

    def _cut_wire(self) -> str:
        number = self._machine().number
        self._stack.networks.cut(number)
        try:
            self._hold(1.0, 12.0)
        finally:
            self._stack.networks.mend(number)
        return f"machine {number}"

    # The world.

    def _fill_disk(self) -> str:
        spare = self._random.choice(_SPARE_BYTES)
        self._stack.enclosure.fill_disk(spare)
        try:
            self._hold(3.0, 8.0)
        finally:
            self._stack.enclosure.empty_disk()
        return f"{spare} bytes left"

    def _move_clock(self) -> str:
        jump = self._random.choice(_CLOCK_JUMPS)
        self._stack.home.move_clock(jump)
        try:
            self._hold(4.0, 12.0)
        finally:
            self._stack.home.move_clock(0)
        return f"{jump:+} s and back"

    def counts(self) -> dict[str, Any]:
        found: dict[str, list[Fault]] = {}
        for one in self.done:
            found.setdefault(one.kind, []).append(one)
        return {
            kind: {"count": len(ones), "slowest_recovery": round(max(one.recovered for one in ones), 2)}
            for kind, ones in sorted(found.items())
        }
