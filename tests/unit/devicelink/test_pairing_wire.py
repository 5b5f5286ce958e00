import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.devicelink.pairing import messages as wire
from palyra.devicelink.pairing.code import DeviceFacts, PairingMethod
from palyra.devicelink.pairing.proof import MalformedProof
from palyra.identity.device import DeviceKind

MESSAGES = [
    wire.Begin(version=1, nameplate="123", kind=DeviceKind.NODE),
    wire.Hello(version=1, session="s", method=PairingMethod.QR, salt=bytes(16), message=bytes(33), ca_der=b"der"),
    wire.Finish(
        session="s",
        message=bytes(33),
        confirmation=bytes(32),
        csr_der=b"csr",
        facts=DeviceFacts(name="ü"),
        leaf_hash="0" * 64,
    ),
    wire.Finished(confirmation=bytes(32), pairing_id="p", device_id="d"),
    wire.Wait(pairing_id="p", collect=bytes(32), wait_ms=5),
    wire.Answer(state="completed", certificate_pem=b"pem", generation=1, node_port=5),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_messages_come_back_as_they_were_sent(message):
    assert wire.decode(wire.encode(message), type(message)) == message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_unknown_fields_and_second_readings_are_refused(message):
    document = msgspec.to_builtins(message)
    with pytest.raises(MalformedProof):
        wire.decode(msgspec.json.encode({**document, "more": 1}), type(message))
    twice = (
        wire.encode(message).replace(b"{", b'{"version":1,', 1).replace(b'"version":1,', b'"version":1,"version":1,')
    )
    with pytest.raises(MalformedProof):
        wire.decode(twice, type(message))


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"nameplate": "12"}, {"nameplate": "12a"}, {"nameplate": "1234"}, {"kind": "toaster"},
     {"version": "1"}, {"nameplate": None}],
)  # fmt: skip
def test_a_begin_out_of_bounds_is_refused(change):
    document = {**msgspec.to_builtins(MESSAGES[0]), **change}
    with pytest.raises(MalformedProof):
        wire.decode(msgspec.json.encode(document), wire.Begin)


@pytest.mark.parametrize(
    "change",
    [{"message": ""}, {"confirmation": "AAAA"}, {"csr_der": ""}, {"csr_der": "A" * 8_000}, {"leaf_hash": "zz"},
     {"facts": {}}, {"facts": {"name": "x", "extra": 1}}, {"session": ""}, {"session": "x" * 65}, {"message": "!"}],
)  # fmt: skip
def test_a_finish_out_of_bounds_is_refused(change):
    document = {**msgspec.to_builtins(MESSAGES[2]), **change}
    with pytest.raises(MalformedProof):
        wire.decode(msgspec.json.encode(document), wire.Finish)


@given(st.binary(max_size=200))
def test_noise_is_refused_in_order(raw):
    for type_ in (wire.Begin, wire.Finish, wire.Wait, wire.Hello):
        with pytest.raises(MalformedProof):
            wire.decode(raw, type_)
