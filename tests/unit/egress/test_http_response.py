import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.playbook import Playbook, Refused, cut_anyhow, mutated, pieces_of, silence, transcript
from palyra.egress.domain.refusal import MalformedTraffic
from palyra.egress.limits import MAX_EARLY_BYTES, MAX_INTERIM_RESPONSES
from palyra.egress.protocols.http1_head import parse_response_head
from palyra.egress.protocols.http1_response import (
    TRANSITIONS,
    Answer,
    AnswerBody,
    AnswerEnded,
    ResponseEvent,
    ResponseReader,
    ResponseState,
    Switched,
)
from palyra.egress.protocols.state_machine import MachineMisused, step

COUNTED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = b"HTTP/1.1 200 OK\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"


def answer(raw: bytes, *, interim: bool = False) -> Answer:
    return Answer(parse_response_head(raw), interim)


def at(state: ResponseState) -> ResponseReader:
    reader = ResponseReader("GET", upgrade=True)
    received = {
        ResponseState.HEAD: b"",
        ResponseState.BODY: COUNTED,
        ResponseState.ENDED: EMPTY,
        ResponseState.SPOILED: EMPTY + b"x",
        ResponseState.UPGRADED: SWITCH,
        ResponseState.REFUSED: b"\n",
    }
    transcript(reader, [received[state]])
    assert reader.state is state
    return reader


@pytest.mark.parametrize(("state", "event"), list(itertools.product(ResponseState, ResponseEvent)))
def test_every_pair_is_handled_or_refused(state: ResponseState, event: ResponseEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert step(TRANSITIONS, state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(MachineMisused):
            step(TRANSITIONS, state, event)


@pytest.mark.parametrize("state", list(ResponseState))
def test_every_state_takes_bytes_and_the_end(state: ResponseState) -> None:
    for data in (b"", b"x", b"\n", COUNTED, b"\x00" * 100):
        transcript(at(state), [data])
    reader = at(state)
    if state in (ResponseState.HEAD, ResponseState.BODY):
        with pytest.raises(MalformedTraffic):
            reader.closed()
    else:
        assert reader.closed() == [] and not reader.reusable


def test_a_counted_answer() -> None:
    book = Playbook(ResponseReader("GET")) >> COUNTED + b"hel" << answer(COUNTED) << AnswerBody(b"hel")
    book >> b"lo" << AnswerBody(b"lo") << AnswerEnded() >> silence
    assert book.machine.reusable


def test_a_chunked_answer_keeps_its_framing() -> None:
    body = b"2\r\nhi\r\n0\r\nX: y\r\n\r\n"
    book = Playbook(ResponseReader("GET")) >> CHUNKED + body
    book << answer(CHUNKED) << AnswerBody(body) << AnswerEnded() >> silence
    assert book.machine.reusable


def test_an_answer_that_ends_with_the_connection() -> None:
    book = Playbook(ResponseReader("GET")) >> ENDLESS + b"some" << answer(ENDLESS) << AnswerBody(b"some")
    book >> b" more" << AnswerBody(b" more") >> ResponseReader.closed << AnswerEnded() >> silence
    assert not book.machine.reusable


@pytest.mark.parametrize("raw", [COUNTED, CHUNKED, ENDLESS])
def test_head_has_no_body_whatever_its_head_says(raw: bytes) -> None:
    book = Playbook(ResponseReader("HEAD")) >> raw << answer(raw) << AnswerEnded() >> silence
    assert book.machine.reusable


def test_interim_answers_come_before_the_answer() -> None:
    book = Playbook(ResponseReader("POST")) >> CONTINUE + EMPTY
    book << answer(CONTINUE, interim=True) << answer(EMPTY) << AnswerEnded() >> silence
    flood = Playbook(ResponseReader("POST"))
    for _ in range(MAX_INTERIM_RESPONSES):
        flood >> CONTINUE << answer(CONTINUE, interim=True)
    flood >> CONTINUE << Refused("too many interim") >> silence


def test_an_answer_nobody_asked_for_spoils_the_connection() -> None:
    for pieces in ([EMPTY + COUNTED], [EMPTY, COUNTED]):
        reader = ResponseReader("GET")
        assert transcript(reader, pieces) == [answer(EMPTY), AnswerEnded()]
        assert not reader.reusable and reader.rest == b""


def test_a_server_that_will_close_is_not_asked_again() -> None:
    for raw in (
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n",
    ):
        reader = ResponseReader("GET")
        assert transcript(reader, [raw]) == [answer(raw), AnswerEnded()] and not reader.reusable


def test_a_switch_of_protocols_is_taken_only_where_it_was_asked_for() -> None:
    book = Playbook(ResponseReader("GET", upgrade=True)) >> SWITCH + b"\x81\x00"
    book << Switched(parse_response_head(SWITCH)) >> b"\x82" >> silence
    assert book.machine.rest == b"\x81\x00\x82"
    with pytest.raises(MachineMisused):
        book.machine.receive(bytes(MAX_EARLY_BYTES))
    Playbook(ResponseReader("GET")) >> SWITCH << Refused("nobody asked for") >> silence
    for other in (SWITCH.replace(b"websocket", b"h2c"), b"HTTP/1.1 101 Switching\r\n\r\n"):
        Playbook(ResponseReader("GET", upgrade=True)) >> other << Refused("nobody asked for") >> silence


@pytest.mark.parametrize("raw", [COUNTED[:-1], COUNTED + b"hell", CHUNKED + b"5\r\nhe", CONTINUE])
def test_an_answer_cut_short_is_told(raw: bytes) -> None:
    reader = ResponseReader("GET")
    transcript(reader, [raw])
    with pytest.raises(MalformedTraffic):
        reader.closed()
    assert not reader.reusable


SAMPLES = (
    COUNTED + b"hello", CHUNKED + b"5\r\nhello\r\n0\r\n\r\n", CONTINUE + EMPTY, SWITCH + b"frames", ENDLESS + b"data",
    EMPTY + COUNTED + b"hello",
)  # fmt: skip


@given(st.sampled_from(SAMPLES), cut_anyhow())
def test_any_pieces_give_the_same_commands(data: bytes, cuts: list[int]) -> None:
    reader, other = ResponseReader("GET", upgrade=True), ResponseReader("GET", upgrade=True)
    assert transcript(reader, pieces_of(data, cuts)) == transcript(other, [data])
    assert (reader.state, reader.rest, reader.reusable) == (other.state, other.rest, other.reusable)


@given(mutated(SAMPLES), cut_anyhow(), st.booleans())
def test_mutated_answers_end_the_same_way(data: bytes, cuts: list[int], upgrade: bool) -> None:
    reader, other = ResponseReader("GET", upgrade=upgrade), ResponseReader("GET", upgrade=upgrade)
    said, whole = transcript(reader, pieces_of(data, cuts)), transcript(other, [data])
    assert (reader.state, reader.reusable) == (other.state, other.reusable)
    # What is refused is refused for the same reason; more of it may have been passed on before.
    assert said[-1:] == whole[-1:]


@given(st.binary(max_size=300))
def test_any_bytes_are_an_answer_or_refused(data: bytes) -> None:
    transcript(ResponseReader("GET"), [data])
