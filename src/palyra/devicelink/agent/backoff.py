"""The delay before the next try: longer each time, with chance, so that devices do not try in step."""

import msgspec

from palyra.devicelink import limits


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """``failures`` in a row so far."""

    failures: int = 0

    def failed(self) -> "Backoff":
        return Backoff(failures=self.failures + 1)

    def delay_ms(self, draw: float) -> int:
        """Compute the delay: half is fixed, half depends on ``draw``, which is from 0 to 1."""
        if not self.failures:
            return 0
        # Capped before the shift: a device that was away for a year has a large number of failures.
        doubled = limits.FIRST_DELAY_MS << min(self.failures - 1, limits.LONGEST_DELAY_MS.bit_length())
        whole = min(doubled, limits.LONGEST_DELAY_MS)
        return whole // 2 + int(draw * (whole - whole // 2))
