"""Output of one lease as it comes, in pieces, each with where it begins: for people who watch."""

from collections.abc import Callable
from typing import Any, Final, Protocol

from palyra.wire.worker.v1 import worker_pb2 as wire
from palyra.workers.agent.limits import OUTPUT_CHUNK_BYTES
from palyra.workers.agent.offer import LeaseOffer

_STREAMS: Final = {1: wire.OUTPUT_STREAM_STDOUT, 2: wire.OUTPUT_STREAM_STDERR}


class Shows(Protocol):
    def show(self, **event: Any) -> None: ...


class ShownOutput:
    """``link`` is the connection of the moment; what comes while there is none is not shown to anybody."""

    def __init__(self, offer: LeaseOffer, link: Callable[[], Shows | None]) -> None:
        self._offer = offer
        self._link = link
        self._offsets = dict.fromkeys(_STREAMS, 0)

    def __call__(self, stream: int, data: bytes) -> None:
        for start in range(0, len(data), OUTPUT_CHUNK_BYTES):
            piece = data[start : start + OUTPUT_CHUNK_BYTES]
            if (link := self._link()) is not None:
                link.show(
                    output=wire.OutputChunk(
                        lease_id=self._offer.lease_id,
                        fence=self._offer.fence,
                        stream=_STREAMS[stream],
                        offset=self._offsets[stream],
                        data=piece,
                    )
                )
            self._offsets[stream] += len(piece)
