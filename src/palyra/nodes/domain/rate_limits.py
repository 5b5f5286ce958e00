"""How often one address, and all of them together, may try to pair. Codes themselves burn after five wrong guesses.

Counted in memory: a restart forgives addresses, never codes. Addresses of one IPv6 network of 64 bits count as one,
since whoever has one of them has them all.
"""

import ipaddress
from collections import OrderedDict, deque
from typing import Final, NamedTuple

from palyra.errors import LimitExceeded
from palyra.identity.device import DeviceId

# Wrong proofs of one address, and how long one of them counts.
MAX_FAILURES_PER_ADDRESS: Final = 10
FAILURE_SECONDS: Final = 600.0
# Attempts begun by one address: a burst, then one every two seconds. An attempt costs some 10 ms of computing.
ATTEMPT_BURST: Final = 10.0
ATTEMPTS_PER_SECOND: Final = 0.5
# Attempts of all addresses together: what one core does in a fifth of its time.
TOTAL_BURST: Final = 40.0
TOTAL_PER_SECOND: Final = 20.0
# Told apart at once; the address not heard of for the longest time is forgotten first.
MAX_ADDRESSES: Final = 4_096
_IPV6_NETWORK_BITS: Final = 64


class TooManyAttempts(LimitExceeded):
    code = "pairing.too_many_attempts"
    hint = "wait, then try again with a code that is certainly right"


class Bucket:
    """Fills at a rate up to a burst; each use takes one."""

    __slots__ = ("_level", "_seen")

    def __init__(self) -> None:
        self._level: float | None = None
        self._seen = 0.0

    def take(self, now: float, *, burst: float, rate: float) -> float:
        """How many seconds until there is one; 0.0 if this took one."""
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
        # The newest; more than these tell nothing more, and who fails without end must not be remembered without end.
        self.failures: deque[float] = deque(maxlen=MAX_FAILURES_PER_ADDRESS)


class GuessThrottle:
    """``now`` is monotonic time in seconds."""

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, _Address] = OrderedDict()
        self._total = Bucket()

    def admit(self, address: str, now: float) -> None:
        """Takes one attempt of this address, or raises TooManyAttempts."""
        known = self._address(address)
        self._require_few_failures(known, now)
        wait = known.attempts.take(now, burst=ATTEMPT_BURST, rate=ATTEMPTS_PER_SECOND)
        # The total is asked last: one address that is refused anyway takes nothing from the others.
        wait = wait or self._total.take(now, burst=TOTAL_BURST, rate=TOTAL_PER_SECOND)
        if wait:
            raise TooManyAttempts("too many attempts to pair", retry_after_ms=int(wait * 1000) + 1)

    def failed(self, address: str, now: float) -> None:
        self._address(address).failures.append(now)

    def require_few_failures(self, address: str, now: float) -> None:
        """Asked again when an attempt ends: many may have been begun before the first of them failed."""
        self._require_few_failures(self._address(address), now)

    def _require_few_failures(self, known: _Address, now: float) -> None:
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


# How often one device may do what leaves a trace: connect, tell something new of itself, ask for capabilities.
#
# A device that is paired is not trusted with the journal's disk. Two that share a stolen certificate and take each
# other's place, one whose inventory changes with every message, one that asks without end: each is slowed down here,
# and told so; how often is counted with the other refusals.


class Rate(NamedTuple):
    burst: float
    per_second: float


# A device whose network comes and goes reconnects now and then; thirty times at once it does not.
CONNECTIONS: Final = Rate(30.0, 0.1)
# Inventories change with a device's settings, by hand.
NEWS: Final = Rate(20.0, 0.1)
# Every one is a call on record, and may be a question to a person.
EXECUTIONS: Final = Rate(60.0, 1.0)
# Told apart at once: all the devices there may be, with room for those that were revoked.
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
        """Takes one, or raises TooOften."""
        bucket = self._buckets.setdefault(device_id, Bucket())
        self._buckets.move_to_end(device_id)
        if len(self._buckets) > MAX_TRACKED_DEVICES:
            self._buckets.popitem(last=False)
        wait = bucket.take(now, burst=self._rate.burst, rate=self._rate.per_second)
        if wait:
            raise TooOften("this device does that too often", device=device_id, retry_after_ms=int(wait * 1000) + 1)
