"""The Chrome DevTools Protocol over the pipe: JSON messages, each ended by a NUL. Pages put hostile text into them."""

import json
from typing import Any, Final

import msgspec

from palyra.browser.domain.limits import MAX_COMMAND_BYTES, MAX_FRAME_BYTES
from palyra.errors import Failed, LimitExceeded

_END: Final = b"\0"
_SHOWN_CHARS: Final = 300


class CdpBroken(Failed):
    code = "browser.cdp_broken"
    hint = "the session is over; open another"


class CommandRefused(Failed):
    """Chromium answered that a command failed."""

    code = "browser.command_refused"
    hint = "the page may have changed meanwhile: look at it again"


class CommandTooLarge(LimitExceeded):
    code = "browser.command_too_large"
    hint = f"one command has at most {MAX_COMMAND_BYTES} bytes"


class CommandNotText(Failed):
    code = "browser.command_not_text"
    hint = "text must be Unicode without lone surrogates"


class Fault(msgspec.Struct, frozen=True):
    code: int = 0
    message: str = ""
    data: Any = None


class Reply(msgspec.Struct, frozen=True):
    id: int
    result: dict[str, Any]
    fault: Fault | None = None


class CdpEvent(msgspec.Struct, frozen=True):
    """``session_id`` is empty for the browser itself."""

    method: str
    params: dict[str, Any]
    session_id: str = ""


class _Message(msgspec.Struct, rename="camel"):
    id: int | None = None
    method: str = ""
    params: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: Fault | None = None
    session_id: str = ""


_decoder: Final = msgspec.json.Decoder(_Message)
_encoder: Final = msgspec.json.Encoder()


class FrameReader:
    """Split the received bytes into messages."""

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, data: bytes) -> list[bytes]:
        *ended, rest = data.split(_END)
        frames: list[bytes] = []
        for part in ended:
            self._hold(part)
            frames.append(b"".join(self._parts) if len(self._parts) > 1 else part)
            self._parts.clear()
            self._held = 0
        if rest:
            self._hold(rest)
        return frames

    def _hold(self, part: bytes) -> None:
        self._held += len(part)
        if self._held > self._max_bytes:
            self._parts.clear()
            raise CdpBroken(f"Chromium sent a message of more than {self._max_bytes} bytes")
        self._parts.append(part)


def encode(number: int, method: str, params: dict[str, Any] | None, session_id: str | None) -> bytes:
    message: dict[str, Any] = {"id": number, "method": method, "params": params or {}}
    if session_id:
        message["sessionId"] = session_id
    try:
        frame = _encoder.encode(message)
    except (UnicodeEncodeError, TypeError) as problem:
        raise CommandNotText(f"{method} cannot be sent: {problem}", method=method) from problem
    if len(frame) > MAX_COMMAND_BYTES:
        raise CommandTooLarge(f"{method} has {len(frame)} bytes", method=method, bytes=len(frame))
    return frame + _END


def decode(frame: bytes) -> Reply | CdpEvent:
    try:
        message = _decoder.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        message = _decode_mended(frame)
    if message.id is not None:
        return Reply(message.id, message.result or {}, message.error)
    if not message.method:
        raise CdpBroken("Chromium sent a message that is neither a reply nor an event")
    return CdpEvent(message.method, message.params or {}, message.session_id)


def _decode_mended(frame: bytes) -> _Message:
    """Replace half a surrogate pair in a page's text: JSON can write it, and Unicode cannot."""
    try:
        text = json.dumps(json.loads(frame), ensure_ascii=False)
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return _decoder.decode(whole.encode())
    except (ValueError, msgspec.MsgspecError, RecursionError) as problem:
        raise CdpBroken(f"Chromium sent a message that is not understood: {_shorten(str(problem))}") from problem


def refusal(method: str, fault: Fault) -> CommandRefused:
    data = f" ({fault.data})" if isinstance(fault.data, str) and fault.data else ""
    text = _shorten(f"{fault.message}{data}")
    return CommandRefused(f"{method}: {text}", method=method, cdp_code=fault.code, cdp_message=text)


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
