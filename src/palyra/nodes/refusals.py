"""Refusals counted always and recorded now and then: who is refused again and again does not fill the journal."""

from typing import NamedTuple

from palyra.nodes.rpc_limits import MAX_REFUSAL_KINDS, REFUSALS_RECORDED_EVERY_SECONDS


class RefusalKind(NamedTuple):
    method: str
    code: str
    device_id: str
    fingerprint: str


class _Count:
    __slots__ = ("recorded", "waiting")

    def __init__(self) -> None:
        self.recorded = float("-inf")
        self.waiting = 0


class RefusalCounts:
    def __init__(self) -> None:
        self._counts: dict[RefusalKind, _Count] = {}
        self.total = 0

    def note(self, kind: RefusalKind, now: float) -> int:
        """How many refusals of this kind to record now; 0 where one was recorded only just."""
        self.total += 1
        count = self._counts.pop(kind, None) or _Count()
        # The kind seen last is at the end; the one that nobody was refused for the longest time goes.
        self._counts[kind] = count
        if len(self._counts) > MAX_REFUSAL_KINDS:
            del self._counts[next(iter(self._counts))]
        count.waiting += 1
        if now - count.recorded < REFUSALS_RECORDED_EVERY_SECONDS:
            return 0
        count.recorded, waiting, count.waiting = now, count.waiting, 0
        return waiting
