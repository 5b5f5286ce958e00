"""Following a call as transcripts of steps."""

from typing import Any

import pytest

from palyra.client.events import Emit, Head, OpenStream, Pause, ReadChunk, Script, follow_call
from palyra.client.protocol import (
    ApiError,
    BadAnswer,
    BadRequestValue,
    ClientLimits,
    ClientTimeout,
    ConnectFailed,
    ConnectionLost,
)

GOOD = Head(200, (("content-type", "text/event-stream; charset=utf-8"),))
LIMITS = ClientLimits(max_stream_resumes=2)


def start(after: str | None = None) -> tuple[Script, OpenStream]:
    script = follow_call("c", after=after, limits=LIMITS)
    step = next(script)
    assert isinstance(step, OpenStream)
    return script, step


def resumed_after(step: Any) -> str | None:
    assert isinstance(step, OpenStream)
    return dict(step.request.headers).get("last-event-id")


def test_events_are_emitted_until_the_clean_end() -> None:
    script, opening = start()
    assert (opening.request.path, resumed_after(opening)) == ("/v1/tool-calls/c/events", None)
    assert script.send(GOOD) == ReadChunk()
    step = script.send(b"id: 1\nevent: k\ndata: 1\n\n")
    assert isinstance(step, Emit) and (step.event.id, step.event.kind, step.event.data) == ("1", "k", 1)
    assert script.send(None) == ReadChunk()
    with pytest.raises(StopIteration):
        script.send(b"")


def test_a_loss_is_resumed_after_a_growing_pause_and_given_up_in_the_end() -> None:
    script, _ = start(after="4")
    script.send(GOOD)
    pauses = []
    for _ in range(2):
        pause = script.throw(ConnectionLost("gone"))
        assert isinstance(pause, Pause)
        pauses.append(pause.seconds)
        assert resumed_after(script.send(None)) == "4"
    assert pauses[0] < pauses[1]
    with pytest.raises(ConnectFailed):
        script.throw(ConnectFailed("refused"))


def test_progress_resets_the_count_and_the_server_chooses_the_pause() -> None:
    script, _ = start()
    for seq in range(1, 8):
        script.send(GOOD)
        step = script.send(f"retry: 1500\nid: {seq}\ndata: {seq}\n\n".encode())
        assert isinstance(step, Emit)
        script.send(None)
        assert script.throw(ConnectionLost("gone")) == Pause(1.5)
        assert resumed_after(script.send(None)) == str(seq)


def test_the_pause_has_a_limit() -> None:
    script, _ = start()
    script.send(GOOD)
    script.send(b"retry: 999999999\n\n")
    assert script.throw(ConnectionLost("gone")) == Pause(LIMITS.max_resume_delay_seconds)


def test_silence_reopens_without_counting() -> None:
    script, _ = start()
    for _ in range(10):
        script.send(GOOD)
        assert isinstance(script.throw(ClientTimeout("silent")), OpenStream)


@pytest.mark.parametrize("error", [ConnectFailed("no"), ConnectionLost("no"), ClientTimeout("no")])
def test_a_stream_that_never_opened_is_not_retried(error: Exception) -> None:
    script, _ = start()
    with pytest.raises(type(error)):
        script.throw(error)


def test_a_refusal_is_read_and_raised() -> None:
    script, _ = start()
    script.send(Head(404, ()))
    script.send(b'{"ok":false,"error":{"code":"call.unknown",')
    script.send(b'"message":"m"}}')
    with pytest.raises(ApiError) as caught:
        script.send(b"")
    assert caught.value.remote_code == "call.unknown"


def test_a_document_where_events_belong_is_refused() -> None:
    script, _ = start()
    script.send(Head(200, (("content-type", "application/json"),)))
    script.send(b'{"ok":true,"data":1}')
    with pytest.raises(BadAnswer):
        script.send(b"")


@pytest.mark.parametrize("after", ["1\r\nx: y", "é", "\x00"])
def test_an_id_that_is_no_header_value_is_not_sent(after: str) -> None:
    with pytest.raises(BadRequestValue):
        next(follow_call("c", after=after, limits=LIMITS))
