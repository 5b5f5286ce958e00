"""The time a guest sees: a wall clock that stands still, and a monotonic one that moves a little with each reading."""

from typing import Final

_NS_PER_MS: Final = 1_000_000
_STEP_NS: Final = 1_000
_U64_MOST: Final = (1 << 64) - 1


class GuestClock:
    """A real clock would make runs differ and tell a guest how long its neighbours take."""

    def __init__(self, wall_ms: int) -> None:
        self.wall_ns = min(max(wall_ms, 0) * _NS_PER_MS, _U64_MOST)
        self._steps = 0

    def monotonic_ns(self) -> int:
        self._steps += 1
        return self._steps * _STEP_NS
