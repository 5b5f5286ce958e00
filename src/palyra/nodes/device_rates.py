"""How often one device may do what leaves a trace: connect, tell something new of itself, ask for capabilities.

A device that is paired is not trusted with the journal's disk. Two that share a stolen certificate and take each
other's place, one whose inventory changes with every message, one that asks without end: each is slowed down here, and
told so; how often is counted with the other refusals.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from palyra.errors import LimitExceeded
from palyra.identity.device import DeviceId
from palyra.nodes.guess_throttle import Bucket


class Rate(NamedTuple):
    burst: float
    per_second: float


# A device whose network comes and goes reconnects now and then; thirty times at once it does not.
CONNECTIONS: Final = Rate(30.0, 0.1)
# Inventories change with a device's settings, by hand.
NEWS: Final = Rate(20.0, 0.1)
# Every one is a call on record, and may be a question to a person.
ASKED: Final = Rate(60.0, 1.0)
# Told apart at once: all the devices there may be, with room for those that were revoked.
MAX_DEVICES_TOLD_APART: Final = 4_096


class TooOften(LimitExceeded):
    code = "nodes.too_often"
    hint = "wait; a device that is refused for this again and again is broken, or its certificate is used twice"


class DeviceRates:
    """``now`` is monotonic time in seconds."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._buckets: OrderedDict[DeviceId, Bucket] = OrderedDict()

    def take(self, device_id: DeviceId, now: float) -> None:
        """Takes one, or raises TooOften."""
        bucket = self._buckets.setdefault(device_id, Bucket())
        self._buckets.move_to_end(device_id)
        if len(self._buckets) > MAX_DEVICES_TOLD_APART:
            self._buckets.popitem(last=False)
        wait = bucket.take(now, burst=self._rate.burst, rate=self._rate.per_second)
        if wait:
            raise TooOften("this device does that too often", device=device_id, retry_after_ms=int(wait * 1000) + 1)
