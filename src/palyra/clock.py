"""Time as a parameter. Core code takes an instant; only composition roots hold a clock."""

import time
from datetime import UTC, datetime
from typing import Protocol

MS_PER_SECOND = 1000


class Clock(Protocol):
    def now_ms(self) -> int:
        """Return the wall time in milliseconds since the epoch, for records."""

    def monotonic(self) -> float:
        """Return seconds that never go back, for deadlines and durations."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # Not a method: every call reads it many times.
    monotonic = staticmethod(time.monotonic)


def rfc3339(instant_ms: int) -> str:
    """Write ``2026-11-16T00:35:23.123Z``, the only spelling of time that leaves this program."""
    moment = datetime.fromtimestamp(instant_ms // MS_PER_SECOND, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{instant_ms % MS_PER_SECOND:03d}Z"
