"""Rate limits: how often an address may try to pair, and how often a device may connect, register or make calls.

The counts are in memory: a restart resets addresses, but not codes, which burn after five wrong guesses. Addresses of
one IPv6 network of 64 bits count as one, since a host can use all of them.
"""

import ipaddress
from collections import OrderedDict, deque
from typing import Final, NamedTuple

from palyra.errors import LimitExceeded
from palyra.identity.device import DeviceId

# Wrong proofs of one address, and how long each of them counts.
MAX_FAILURES_PER_ADDRESS: Final = 10
FAILURE_SECONDS: Final = 600.0
# Attempts begun by one address: a burst, then one every two seconds. An attempt costs some 10 ms of computing.
ATTEMPT_BURST: Final = 10.0
ATTEMPTS_PER_SECOND: Final = 0.5
# Attempts of all addresses together: they take a fifth of one core's time.
TOTAL_BURST: Final = 40.0
TOTAL_PER_SECOND: Final = 20.0
# Addresses tracked at once. The one that was silent longest is dropped first.
MAX_ADDRESSES: Final = 4_096
_IPV6_NETWORK_BITS: Final = 64


class TooManyAttempts(LimitExceeded):
    code = "pairing.too_many_attempts"
    hint = "wait, then try again with a code that is certainly right"


class Bucket:
    """A token bucket: it fills at a rate up to a burst, and each use takes one."""

    __slots__ = ("_level", "_seen")

    def __init__(self) -> None:
        self._level: float | None = None
        self._seen = 0.0

    def take(self, now: float, *, burst: float, rate: float) -> float:
        """Take one. Return 0.0, or how many seconds until one is available."""
        level = burst if self._level is None else min(burst, self._level + max(0.0, now - self._seen) * rate)
        self._seen = now
        if level < 1.0:
            self._level = level
            return (1.0 - level) / rate
        self._level = level - 1.0
        return 0.0


class _Address:
    __slots__ = ("attempts", "failures")

    def __init__(self) -> None:
        self.attempts = Bucket()
        # The newest failures: more of them would not change the decision.
        self.failures: deque[float] = deque(maxlen=MAX_FAILURES_PER_ADDRESS)


class GuessThrottle:
    """``now`` is monotonic time in seconds."""

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, _Address] = OrderedDict()
        self._total = Bucket()

    def admit(self, address: str, now: float) -> None:
        """Take one attempt of this address, or raise TooManyAttempts."""
        self.require_few_failures(address, now)
        wait = self._address(address).attempts.take(now, burst=ATTEMPT_BURST, rate=ATTEMPTS_PER_SECOND)
        # The total comes last: a refused address takes nothing from the others.
        wait = wait or self._total.take(now, burst=TOTAL_BURST, rate=TOTAL_PER_SECOND)
        if wait:
            raise TooManyAttempts("too many attempts to pair", retry_after_ms=int(wait * 1000) + 1)

    def failed(self, address: str, now: float) -> None:
        self._address(address).failures.append(now)

    def require_few_failures(self, address: str, now: float) -> None:
        """Check again when an attempt ends: many may have begun before the first one failed."""
        known = self._address(address)
        if len(known.failures) == MAX_FAILURES_PER_ADDRESS and now - known.failures[0] < FAILURE_SECONDS:
            wait = FAILURE_SECONDS - (now - known.failures[0])
            raise TooManyAttempts("too many wrong codes from this address", retry_after_ms=int(wait * 1000) + 1)

    def _address(self, address: str) -> _Address:
        key = network_of(address)
        known = self._addresses.setdefault(key, _Address())
        self._addresses.move_to_end(key)
        if len(self._addresses) > MAX_ADDRESSES:
            self._addresses.popitem(last=False)
        return known


def network_of(address: str) -> str:
    try:
        literal = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(literal, ipaddress.IPv6Address):
        if literal.ipv4_mapped is not None:
            return str(literal.ipv4_mapped)
        return str(ipaddress.ip_network((literal, _IPV6_NETWORK_BITS), strict=False))
    return str(literal)


# A paired device must not fill the journal's disk, so its connections, changes and calls have rate limits.
#
# They slow down two devices that share a stolen certificate and replace each other, a device whose inventory changes
# with every message, and one that makes calls endlessly. The device gets the refusal, which is counted.


class Rate(NamedTuple):
    burst: float
    per_second: float


# A device with an unstable network reconnects now and then, but not thirty times at once.
CONNECTIONS: Final = Rate(30.0, 0.1)
# An inventory changes when a person changes the device's settings.
NEWS: Final = Rate(20.0, 0.1)
# Each one is a recorded call, and may need a person's approval.
EXECUTIONS: Final = Rate(60.0, 1.0)
# Devices tracked at once: all possible ones, with room for revoked ones.
MAX_TRACKED_DEVICES: Final = 4_096


class TooOften(LimitExceeded):
    code = "nodes.too_often"
    hint = "wait; a device that is refused for this again and again is broken, or its certificate is used twice"


class DeviceRates:
    """``now`` is monotonic time in seconds."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._buckets: OrderedDict[DeviceId, Bucket] = OrderedDict()

    def take(self, device_id: DeviceId, now: float) -> None:
        """Take one, or raise TooOften."""
        bucket = self._buckets.setdefault(device_id, Bucket())
        self._buckets.move_to_end(device_id)
        if len(self._buckets) > MAX_TRACKED_DEVICES:
            self._buckets.popitem(last=False)
        wait = bucket.take(now, burst=self._rate.burst, rate=self._rate.per_second)
        if wait:
            raise TooOften("this device does that too often", device=device_id, retry_after_ms=int(wait * 1000) + 1)
