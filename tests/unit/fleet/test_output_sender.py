from typing import Any

from fakes.lease_offers import OFFER
from palyra.fleet.agent.agent import OutputSender
from palyra.fleet.limits import OUTPUT_CHUNK_BYTES
from palyra.wire.worker.v1 import worker_pb2 as wire


class Line:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send_unless_full(self, *, output: Any) -> None:
        self.sent.append(output)


def test_output_goes_in_pieces_that_say_where_they_begin() -> None:
    line = Line()
    sink = OutputSender(OFFER, lambda: line)
    sink(1, b"a" * (OUTPUT_CHUNK_BYTES + 5))
    sink(2, b"no")
    sink(1, b"b")
    assert [(each.stream, each.offset, len(each.data)) for each in line.sent] == [
        (wire.OUTPUT_STREAM_STDOUT, 0, OUTPUT_CHUNK_BYTES),
        (wire.OUTPUT_STREAM_STDOUT, OUTPUT_CHUNK_BYTES, 5),
        (wire.OUTPUT_STREAM_STDERR, 0, 2),
        (wire.OUTPUT_STREAM_STDOUT, OUTPUT_CHUNK_BYTES + 5, 1),
    ]
    assert {(each.lease_id, each.fence) for each in line.sent} == {(OFFER.lease_id, 1)}


def test_what_comes_without_a_connection_is_counted_and_not_shown() -> None:
    line: Line | None = None
    sink = OutputSender(OFFER, lambda: line)
    sink(1, b"lost")
    line = Line()
    sink(1, b"seen")
    assert [each.offset for each in line.sent] == [4]
