import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.devicelink.pairing.code import (
    MAX_ADDRESSES,
    MalformedAddress,
    MalformedCode,
    PairingCode,
    PairingMethod,
    ServerAddress,
    free_nameplate,
    is_nameplate,
    new_code,
    parse_code,
    stretch,
)
from palyra.identity.device import DeviceKind
from palyra.secret import Secret

HERE = ServerAddress("192.0.2.1", 7143)
HASH = "ab" * 32


def qr(**changes):
    code = new_code(
        PairingMethod.QR,
        "042",
        os.urandom,
        kind=DeviceKind.NODE,
        addresses=[HERE, ServerAddress("::1", 1)],
        ca_hash=HASH,
    )
    start, _, query = code.text().reveal().partition("?")
    for name, value in changes.items():
        query = "&".join(f"{name}={value}" if part.startswith(f"{name}=") else part for part in query.split("&"))
    return code, f"{start}?{query}"


def test_a_pin_code_is_a_nameplate_and_eight_digits():
    code = new_code(PairingMethod.PIN, "007", os.urandom, kind=DeviceKind.NODE, addresses=[HERE], ca_hash=HASH)
    text = code.text().reveal()
    assert [len(part) for part in text.split("-")] == [3, 4, 4]
    assert parse_code(text) == code
    assert code.addresses == () and code.ca_hash == ""


@pytest.mark.parametrize("text", ["007-1234-5678", "007 1234 5678", "00712345678", "  007-1234-5678\n"])
def test_a_pin_is_read_however_a_person_types_it(text):
    code = parse_code(text)
    assert (code.nameplate, code.secret.reveal()) == ("007", "12345678")


@pytest.mark.parametrize(
    "text", ["", "7-1234-5678", "007-1234-567", "007-1234-56789", "٠٠٧-1234-5678", "007--1234-5678", "x" * 3_000]
)
def test_what_is_no_pin_is_refused_without_repeating_it(text):
    with pytest.raises(MalformedCode) as refused:
        parse_code(text)
    assert not text.strip() or text not in refused.value.message


def test_a_qr_payload_comes_back_whole():
    code, text = qr()
    assert text.startswith("palyra://pair?")
    assert parse_code(text) == code
    assert code.addresses == (HERE, ServerAddress("::1", 1))


@pytest.mark.parametrize(
    "changes",
    [
        {"v": "2"},
        {"k": "toaster"},
        {"h": "AB" * 32},
        {"h": "ab"},
        {"n": "12"},
        {"n": "abc"},
        {"t": "short"},
        {"t": "!" * 22},
        {"a": "nowhere"},
    ],
)
def test_a_qr_payload_with_one_bad_field_is_refused(changes):
    with pytest.raises((MalformedCode, MalformedAddress)):
        parse_code(qr(**changes)[1])


def test_a_qr_payload_with_a_field_twice_more_or_less_is_refused():
    _, text = qr()
    parts = text.split("?")[1].split("&")
    for broken in (
        *[[part for part in parts if not part.startswith(f"{name}=")] for name in "vkhnta"],
        [*parts, "v=1"],
        [*parts, "x=1"],
        [*parts, *["a=h:1"] * MAX_ADDRESSES],
    ):
        with pytest.raises(MalformedCode):
            parse_code("palyra://pair?" + "&".join(broken))
    for frame in ("palyra://pair/x?", "palyra://other?", "palyra:pair?", "palyra://pair#?"):
        with pytest.raises(MalformedCode):
            parse_code(frame + "&".join(parts))


@given(st.text(max_size=80))
def test_anything_else_is_refused_in_order(text):
    for candidate in (text, f"palyra://pair?{text}"):
        try:
            code = parse_code(candidate)
        except (MalformedCode, MalformedAddress):
            continue
        assert is_nameplate(code.nameplate)


def test_a_code_shows_nothing_by_accident():
    code, text = qr()
    assert code.secret.reveal() not in repr(code)
    assert code.secret.reveal() in text


@pytest.mark.parametrize(
    ("raw", "host", "port"),
    [
        ("host.example:1", "host.example", 1),
        ("HOST:65535", "host", 65535),
        ("192.0.2.7:80", "192.0.2.7", 80),
        ("[2001:db8::1]:80", "2001:db8::1", 80),
    ],
)
def test_addresses_are_read_and_written(raw, host, port):
    address = ServerAddress.parse(raw)
    assert (address.host, address.port) == (host, port)
    assert ServerAddress.parse(str(address)) == address


@pytest.mark.parametrize(
    "raw",
    ["", "host", "host:", "host:0", "host:65536", "host:+1", "host:1x", "2001:db8::1:80", "[host]:1", "[192.0.2.1]:1",
     "-host:1", "ho st:1", "host/x:1", "user@host:1", ":1", "host:999999999999999999999"],
)  # fmt: skip
def test_what_is_no_address_is_refused(raw):
    with pytest.raises(MalformedAddress):
        ServerAddress.parse(raw)


def test_a_nameplate_is_one_that_nobody_has():
    taken = frozenset(f"{number:03d}" for number in range(1_000) if number != 321)
    assert free_nameplate(taken, os.urandom) == "321"
    assert is_nameplate(free_nameplate(frozenset(), os.urandom))


def test_the_stretched_code_depends_on_salt_and_secret_and_shows_neither():
    one = stretch(Secret("12345678"), b"a" * 16)
    assert one == stretch(Secret("12345678"), b"a" * 16)
    assert one.hash != stretch(Secret("12345679"), b"a" * 16).hash
    assert one.hash != stretch(Secret("12345678"), b"b" * 16).hash
    assert len(one.hash) == 32 and one.hash.hex() not in repr(one)


def test_pins_are_spread_over_all_digits():
    firsts = {
        new_code(PairingMethod.PIN, "000", os.urandom, kind=DeviceKind.NODE, addresses=(), ca_hash="").secret.reveal()[
            0
        ]
        for _ in range(400)
    }
    assert firsts == set("0123456789")


def test_a_code_without_a_kind_is_for_any():
    assert PairingCode(method=PairingMethod.PIN, nameplate="001", secret=Secret("1")).kind is None
