"""Errors through the socket: the same class with the same text, and never more than metadata can hold."""

from palyra.browser.domain.budget import TooFast
from palyra.browser.service.wire import MAX_DOCUMENT_BYTES, decode_error, encode_error
from palyra.errors import ExitCode, RemoteError, exit_code_of


def test_a_known_error_comes_back_as_itself() -> None:
    back = decode_error(encode_error(TooFast("20 actions within 1000 ms", retry_after_ms=40, hint="slower")))
    assert isinstance(back, TooFast)
    assert (back.message, back.hint, back.details) == ("20 actions within 1000 ms", "slower", {"retry_after_ms": 40})


def test_an_unknown_one_keeps_its_code_and_exit_code() -> None:
    given = RemoteError("no", remote_code="other.thing", hint="h", exit_code=5, http_status=429)
    back = decode_error(encode_error(given))
    assert back.as_dict() == {"code": "other.thing", "message": "no", "hint": "h"}
    assert exit_code_of(back) is ExitCode.LIMIT


def test_details_that_are_too_many_stay_behind() -> None:
    encoded = encode_error(TooFast("x" * 5_000, pages="y" * MAX_DOCUMENT_BYTES))
    assert len(encoded) <= MAX_DOCUMENT_BYTES
    assert decode_error(encoded).details == {}


def test_details_cannot_pass_for_the_hint() -> None:
    raw = b'{"code":"browser.too_many_actions","message":"m","hint":"h","details":{"hint":"x","message":"y"}}'
    back = decode_error(raw)
    assert (back.message, back.hint, back.details) == ("m", "h", {})
