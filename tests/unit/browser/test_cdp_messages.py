"""Messages as they travel over the pipe."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.browser.domain.cdp_messages import (
    CdpBroken,
    CdpEvent,
    CommandNotText,
    CommandTooLarge,
    Fault,
    FrameReader,
    Reply,
    decode,
    encode,
    refusal,
)
from palyra.browser.domain.limits import MAX_COMMAND_BYTES


@given(st.lists(st.binary(max_size=40).map(lambda raw: raw.replace(b"\0", b"")), max_size=8), st.data())
def test_frames_are_the_same_however_they_are_cut(messages: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(message + b"\0" for message in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    reader = FrameReader()
    found: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += reader.feed(stream[start:end])
    assert found == messages


def test_a_message_without_end_is_refused_at_the_bound() -> None:
    reader = FrameReader(max_bytes=10)
    assert reader.feed(b"x" * 10 + b"\0" + b"y" * 5) == [b"x" * 10]
    with pytest.raises(CdpBroken):
        reader.feed(b"y" * 6)


def test_a_command_is_one_frame_whatever_its_text() -> None:
    frame = encode(7, "Input.insertText", {"text": "a\0b\u2028 ü"}, "S1")
    assert frame.count(b"\0") == 1 and frame.endswith(b"\0")
    sent = json.loads(frame[:-1])
    assert sent == {"id": 7, "method": "Input.insertText", "params": {"text": "a\0b\u2028 ü"}, "sessionId": "S1"}


def test_the_browser_itself_has_no_session() -> None:
    assert json.loads(encode(1, "Browser.close", None, None)[:-1]) == {"id": 1, "method": "Browser.close", "params": {}}


def test_a_command_that_cannot_be_text_is_refused() -> None:
    with pytest.raises(CommandNotText):
        encode(1, "Input.insertText", {"text": "\ud800"}, None)
    with pytest.raises(CommandNotText):
        encode(1, "Input.insertText", {"text": object()}, None)


def test_a_command_that_is_too_large_is_refused() -> None:
    with pytest.raises(CommandTooLarge) as refused:
        encode(1, "Runtime.evaluate", {"expression": "x" * MAX_COMMAND_BYTES}, None)
    assert refused.value.details["method"] == "Runtime.evaluate"


def test_replies_and_events_are_told_apart() -> None:
    assert decode(b'{"id":3,"result":{"a":1},"sessionId":"S"}') == Reply(3, {"a": 1})
    assert decode(b'{"id":3,"error":{"code":-32000,"message":"no"}}') == Reply(3, {}, Fault(-32000, "no"))
    assert decode(b'{"method":"Page.x","params":{"b":2},"sessionId":"S"}') == CdpEvent("Page.x", {"b": 2}, "S")
    assert decode(b'{"method":"Page.x"}') == CdpEvent("Page.x", {})


@pytest.mark.parametrize("text", ["\\ud800", "x\\udfffy", "\\ud83d\\ud83d\\ude00"])
def test_half_a_surrogate_pair_of_a_page_is_replaced(text: str) -> None:
    event = decode(f'{{"method":"Runtime.consoleAPICalled","params":{{"t":"{text}"}}}}'.encode())
    assert isinstance(event, CdpEvent)
    assert "\ufffd" in event.params["t"]
    event.params["t"].encode("utf-8")


@pytest.mark.parametrize(
    "frame",
    [b"", b"{", b"[]", b"{}", b'{"id":"x"}', b'{"method":5}', b'{"id":1,"result":[]}', b"\xff", b"[" * 100_000],
)
def test_what_is_no_message_breaks_the_connection(frame: bytes) -> None:
    with pytest.raises(CdpBroken):
        decode(frame)


def test_a_refusal_says_what_chromium_said_and_not_more_than_fits() -> None:
    refused = refusal("DOM.x", Fault(-32000, "m" * 5000, "why"))
    assert refused.code == "browser.command_refused"
    assert refused.details["cdp_code"] == -32000
    assert len(refused.message) < 400
