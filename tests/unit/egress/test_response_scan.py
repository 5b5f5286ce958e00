"""An injected value does not come back, in any spelling a server gives it, however the reply is cut."""

import base64
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress.domain.injection import ResponseScan, list_encodings

TOKEN = "tok/en+with=odd&chars-0123456789"


def scan(text: bytes, value: str = TOKEN) -> tuple[bytes, int]:
    reader = ResponseScan(list_encodings(value))
    return reader.receive(text) + reader.finish(), reader.times


@pytest.mark.parametrize(
    "written",
    [
        TOKEN,
        quote(TOKEN),
        quote(TOKEN, safe=""),
        quote(TOKEN, safe="").replace("%2F", "%2f").replace("%2B", "%2b").replace("%3D", "%3d").replace("%26", "%26"),
        quote_plus(TOKEN),
        json.dumps({"header": TOKEN}),
        json.dumps({"header": TOKEN}).replace("/", "\\/"),
        TOKEN.replace("&", "&amp;"),
        TOKEN.encode().hex(),
        TOKEN.encode().hex().upper(),
    ],
)
def test_spellings_are_overwritten_at_their_length(written: str) -> None:
    raw = f"before {written} after".encode()
    cleaned, times = scan(raw)
    assert times == 1
    assert len(cleaned) == len(raw)
    assert cleaned.startswith(b"before ")
    assert cleaned.endswith(b" after")
    assert TOKEN.encode() not in cleaned
    assert b"0123456789" not in cleaned


@pytest.mark.parametrize("before", ["", "x", "xy", "xyz", "user:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_inside_base64(before: str, encode: Callable[[bytes], bytes]) -> None:
    written = encode(f"{before}{TOKEN} and more".encode())
    cleaned, times = scan(b"<" + written + b">")
    assert times == 1
    recovered = base64.urlsafe_b64decode(cleaned[1:-1].replace(b"*", b"A").translate(bytes.maketrans(b"+/", b"-_")))
    assert TOKEN[3:-3].encode() not in recovered


def test_a_basic_credential_is_known_by_its_password_too() -> None:
    value = base64.b64encode(b"robot:correct-horse-battery").decode()
    cleaned, times = scan(b'{"password": "correct-horse-battery"}', value)
    assert times == 1
    assert b"horse" not in cleaned


@given(st.lists(st.sampled_from([b"x", b"tok", TOKEN.encode(), TOKEN.encode()[:7], b"t", b"\n"])), st.data())
def test_cuts_change_nothing(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    expected = whole.replace(TOKEN.encode(), b"*" * len(TOKEN))
    reader = ResponseScan(list_encodings(TOKEN))
    out = b""
    rest = whole
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        out += reader.receive(rest[:size])
        rest = rest[size:]
    assert out + reader.finish() == expected


def test_a_live_stream_is_not_delayed() -> None:
    reader = ResponseScan(list_encodings(TOKEN))
    assert reader.receive(b"data: 1\n\n") == b"data: 1\n\n"
    assert reader.receive(b"data: " + TOKEN[:5].encode()) == b"data: "
    assert reader.receive(b"x") == TOKEN[:5].encode() + b"x"


def test_nothing_to_look_for_passes_everything() -> None:
    reader = ResponseScan(())
    assert reader.receive(b"abc") == b"abc"
    assert reader.whole(b"abc") == b"abc"
    assert reader.finish() == b""
