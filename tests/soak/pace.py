"""Time as the soak counts it: only while this machine runs. A machine that stood still, frozen or asleep, is a jump of
the clock for everything on it; deadlines of the soak itself do not pass in it."""

import threading
import time
from collections.abc import Callable

# A tick that took longer than this was no tick: the machine stood still, or had no processor for us.
_MOST_PER_TICK = 1.0
_TICK_SECONDS = 0.05
# Pauses of which the report tells.
FREEZE_SECONDS = 5.0


class GaveUp(Exception):
    """What was waited for did not happen."""


class Pace:
    """``awake`` is seconds since the start without those in which nothing ran."""

    def __init__(self) -> None:
        self.freezes: list[tuple[float, float]] = []
        self._awake = 0.0
        self._last = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="pace", daemon=True)
        self._thread.start()

    @property
    def awake(self) -> float:
        return self._awake

    def _tick(self) -> None:
        while not self._stop.wait(_TICK_SECONDS):
            now = time.monotonic()
            passed, self._last = now - self._last, now
            if passed > FREEZE_SECONDS:
                self.freezes.append((self._awake, passed))
            self._awake += min(passed, _MOST_PER_TICK)

    def sleep(self, seconds: float, unless: threading.Event | None = None) -> None:
        """Returns early once ``unless`` is set."""
        until = self._awake + seconds
        while (left := until - self._awake) > 0 and not (unless is not None and unless.is_set()):
            time.sleep(min(left, 0.25))

    def wait_for(self, condition: Callable[[], object], what: str, seconds: float, every: float = 0.1) -> float:
        """Seconds it took, awake. Raises GaveUp."""
        begun = self._awake
        while not condition():
            if self._awake - begun > seconds:
                raise GaveUp(f"{what}: not within {seconds:g} seconds")
            time.sleep(every)
        return self._awake - begun

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
