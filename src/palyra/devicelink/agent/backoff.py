"""How long to wait before the next try: longer each time, and never in step with other devices."""

import msgspec

from palyra.devicelink import limits


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """``failures`` in a row so far."""

    failures: int = 0

    def failed(self) -> "Backoff":
        return Backoff(failures=self.failures + 1)

    def delay_ms(self, draw: float) -> int:
        """``draw`` is from 0 to 1: half of the delay is sure, the other half is chance."""
        if not self.failures:
            return 0
        # Capped before it is raised: a device that was away for a year has a large number of failures.
        doubled = limits.FIRST_DELAY_MS << min(self.failures - 1, limits.LONGEST_DELAY_MS.bit_length())
        whole = min(doubled, limits.LONGEST_DELAY_MS)
        return whole // 2 + int(draw * (whole - whole // 2))
