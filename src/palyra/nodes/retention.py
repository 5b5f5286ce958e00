"""Which records go when there are too many: the oldest of those that have ended. What is open never goes."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from palyra.nodes.limits import MAX_ENDED_CODES, MAX_ENDED_PAIRINGS, MAX_FINISHED_REQUESTS
from palyra.nodes.records import CapabilityRequestRecord, DevicePairingCodeRecord, DevicePairingRequestRecord


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


_R = TypeVar("_R", bound=_Identified)


def surplus_codes(codes: Iterable[DevicePairingCodeRecord], now_ms: int) -> list[str]:
    return _oldest([code for code in codes if code.ended(now_ms)], MAX_ENDED_CODES)


def surplus_pairings(pairings: Iterable[DevicePairingRequestRecord]) -> list[str]:
    return _oldest([pairing for pairing in pairings if not pairing.open()], MAX_ENDED_PAIRINGS)


def surplus_requests(requests: Iterable[CapabilityRequestRecord]) -> list[str]:
    return _oldest([request for request in requests if not request.open()], MAX_FINISHED_REQUESTS)


def _oldest(ended: Sequence[_R], kept: int) -> list[str]:
    excess = len(ended) - kept
    return sorted(record.id for record in ended)[:excess] if excess > 0 else []
