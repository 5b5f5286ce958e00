import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.client.events import EventParser, ServerEvent, event_data
from palyra.client.protocol import BadAnswer, ResponseTooLarge

STREAM = (
    b'\xef\xbb\xbf: comment\r\n\r\nevent: call.started\nid: 1\ndata: {"a":\ndata:1}\n\n'
    b"retry: 250\rid: 2\rdata\r\rdata: x\r\nid: 3\r\n\r\nid: bad\x00\nretry: soon\nunknown: y\ndata: z\n\ndata: lost"
)
EVENTS = [
    ServerEvent(id="1", kind="call.started", data='{"a":\n1}'),
    ServerEvent(id="2", kind="message", data=""),
    ServerEvent(id="3", kind="message", data="x"),
    ServerEvent(id="3", kind="message", data="z"),
]


def test_reads_a_stream_with_every_line_ending() -> None:
    parser = EventParser(1000)
    assert parser.feed(STREAM) == EVENTS
    assert (parser.last_event_id, parser.retry_ms) == ("3", 250)


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_cuts_in_the_stream_change_nothing(cuts: list[int]) -> None:
    parser = EventParser(1000)
    edges = [0, *sorted(cuts), len(STREAM)]
    events = [event for a, b in itertools.pairwise(edges) for event in parser.feed(STREAM[a:b])]
    assert events == EVENTS


def test_an_id_counts_only_when_its_event_is_whole() -> None:
    parser = EventParser(1000, "7")
    parser.feed(b"id: 8\ndata: half")
    assert parser.last_event_id == "7"
    parser.feed(b"\n\n")
    assert parser.last_event_id == "8"


@pytest.mark.parametrize("flood", [b"data: " + b"x" * 200, b"data: xxxxxxxx\n" * 30, b"x" * 200])
def test_an_event_has_a_size_limit(flood: bytes) -> None:
    with pytest.raises(ResponseTooLarge):
        EventParser(100).feed(flood)


def test_a_long_stream_of_small_events_has_none() -> None:
    parser = EventParser(100)
    assert len(parser.feed(b"data: x\n\n" * 1000)) == 1000


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    parser = EventParser(1000)
    for index in range(len(data)):
        parser.feed(data[index : index + 1])


def test_data_is_json() -> None:
    assert event_data(EVENTS[0]) == {"a": 1}
    with pytest.raises(BadAnswer):
        event_data(EVENTS[2])
