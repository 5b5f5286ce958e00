"""When a certificate is renewed, and what a device gets that asks: generations only go forward, one at a time."""

from enum import StrEnum

from palyra.identity.limits import CLOCK_SKEW_MS


class RenewalVerdict(StrEnum):
    NEXT = "next"
    """A certificate of the next generation."""
    AGAIN = "again"
    """The answer that was given already, and that did not arrive."""
    STALE = "stale"
    """Somebody else went on from here: the device is locked."""


def issued_ms(not_before_ms: int) -> int:
    """When a certificate was made: its start lies back by the skew that a device's clock may have."""
    return not_before_ms + CLOCK_SKEW_MS


def renewal_due_ms(not_before_ms: int, not_after_ms: int) -> int:
    """Two thirds of the way from when it was made to its end. Both sides count by this."""
    start = issued_ms(not_before_ms)
    return start + (not_after_ms - start) * 2 // 3


def judge_renewal(
    *, presented: int, newest: int, newest_used: bool, requested_key: str, newest_key: str
) -> RenewalVerdict:
    """``presented`` is the generation the device says it has, ``newest`` the one it was last given.

    A device keeps the key it asks with before it asks, and so can ask again with the same key when no answer came.
    Once the newest certificate was used the answer did arrive, and nobody honest asks with the one before.
    """
    if presented == newest:
        return RenewalVerdict.NEXT
    if presented == newest - 1 and not newest_used and requested_key == newest_key:
        return RenewalVerdict.AGAIN
    return RenewalVerdict.STALE
