"""The end of what calls print on workers while they run: for people who watch. Nothing is decided by it."""

from palyra.workers.service_limits import MAX_OUTPUT_CHUNK_BYTES, MAX_OUTPUT_KEPT_BYTES

# Standard output and standard error.
STREAMS = frozenset((1, 2))


class _Tail:
    def __init__(self) -> None:
        self.end = 0
        self.kept = b""


class OutputTails:
    def __init__(self) -> None:
        self._tails: dict[str, dict[int, _Tail]] = {}

    def __len__(self) -> int:
        return len(self._tails)

    def add(self, lease_id: str, stream: int, offset: int, data: bytes) -> None:
        """What was seen already is dropped; a gap is left as it is."""
        if stream not in STREAMS or len(data) > MAX_OUTPUT_CHUNK_BYTES:
            return
        tail = self._tails.setdefault(lease_id, {}).setdefault(stream, _Tail())
        new = data[max(0, tail.end - offset) :]
        if new:
            tail.end = offset + len(data)
            tail.kept = (tail.kept + new)[-MAX_OUTPUT_KEPT_BYTES:]

    def tail(self, lease_id: str, stream: int) -> bytes:
        tail = self._tails.get(lease_id, {}).get(stream)
        return b"" if tail is None else tail.kept

    def forget(self, lease_id: str) -> None:
        self._tails.pop(lease_id, None)
