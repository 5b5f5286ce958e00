"""Conversations of the two machines, whole and broken: every field changed, messages reflected, replayed, made up."""

import contextlib
import itertools
import os

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.devicelink.pairing.code import DeviceFacts, PairingMethod, StretchedCode
from palyra.devicelink.pairing.proof import (
    COMPARISON_DIGITS,
    MESSAGE_BYTES,
    TRANSITIONS,
    Bound,
    DaemonExchange,
    DaemonProof,
    DeviceAnswer,
    DeviceExchange,
    DeviceProof,
    MalformedProof,
    ProofEvent,
    ProofOutOfOrder,
    ProofState,
    WrongProof,
    collect_digest,
    transcript_of,
)
from palyra.identity.device import DeviceKind

SALT = b"s" * 16
BOUND = Bound(
    method=PairingMethod.PIN,
    kind=DeviceKind.NODE,
    nameplate="123",
    salt=SALT,
    ca_hash="ca" * 32,
    leaf_hash="1e" * 32,
    csr_der=b"a certificate request",
    facts=DeviceFacts(name="laptop", platform="linux", software_version="1"),
)
OTHER = {
    "method": PairingMethod.QR,
    "kind": DeviceKind.WORKER,
    "nameplate": "124",
    "salt": b"t" * 16,
    "ca_hash": "cb" * 32,
    "leaf_hash": "1f" * 32,
    "csr_der": b"another request",
    "facts": DeviceFacts(name="laptop", platform="linux", software_version="2"),
}


def stretched(secret=b"h" * 32):
    return StretchedCode(salt=SALT, n=2, r=1, p=1, hash=secret)


def both(device_secret=b"h" * 32, daemon_secret=b"h" * 32):
    return DeviceProof(DeviceExchange(stretched(device_secret))), DaemonProof(DaemonExchange(stretched(daemon_secret)))


def test_two_sides_that_agree_prove_it_to_each_other():
    device, daemon = both()
    answer = device.answer(daemon.hello(), BOUND)
    confirmation, at_daemon = daemon.conclude(answer, BOUND)
    at_device = device.conclude(confirmation)
    assert at_device == at_daemon
    assert len(at_device.comparison_code) == COMPARISON_DIGITS and at_device.comparison_code.isdigit()
    assert len(at_device.collect) == 32
    assert (device.state, daemon.state) == (ProofState.ENDED, ProofState.ENDED)


def test_each_conversation_has_keys_of_its_own():
    seen = set()
    for _ in range(3):
        device, daemon = both()
        answer = device.answer(daemon.hello(), BOUND)
        confirmation, proved = daemon.conclude(answer, BOUND)
        seen |= {answer.message, answer.confirmation, confirmation, proved.collect}
    assert len(seen) == 12


def test_a_wrong_code_confirms_nothing_on_either_side():
    device, daemon = both(device_secret=b"x" * 32)
    with pytest.raises(WrongProof):
        daemon.conclude(device.answer(daemon.hello(), BOUND), BOUND)


def test_a_false_daemon_cannot_confirm():
    device, daemon = both(daemon_secret=b"guess".ljust(32))
    device.answer(daemon.hello(), BOUND)
    with pytest.raises(WrongProof):
        device.conclude(os.urandom(32))


@pytest.mark.promise("P-pairing-code")
@pytest.mark.parametrize("field", list(OTHER))
def test_whatever_the_two_sides_see_differently_confirms_nothing(field):
    seen_by_daemon = msgspec.structs.replace(BOUND, **{field: OTHER[field]})
    device, daemon = both()
    answer = device.answer(daemon.hello(), BOUND)
    with pytest.raises(WrongProof):
        daemon.conclude(answer, seen_by_daemon)


@pytest.mark.parametrize("field", ["name", "platform", "software_version"])
def test_each_fact_of_the_device_is_bound(field):
    device, daemon = both()
    facts = msgspec.structs.replace(BOUND.facts, **{field: "changed"})
    answer = device.answer(daemon.hello(), BOUND)
    with pytest.raises(WrongProof):
        daemon.conclude(answer, msgspec.structs.replace(BOUND, facts=facts))


def test_every_field_of_what_is_bound_is_tried_above():
    assert set(OTHER) == set(Bound.__struct_fields__)
    assert {"name", "platform", "software_version"} == set(DeviceFacts.__struct_fields__)


@pytest.mark.parametrize("at", range(0, MESSAGE_BYTES, 4))
def test_a_changed_bit_in_any_message_confirms_nothing(at):
    def flipped(message):
        changed = bytearray(message)
        changed[at] ^= 1
        return bytes(changed)

    device, daemon = both()
    hello = daemon.hello()
    try:
        answer = device.answer(flipped(hello), BOUND)
    except MalformedProof:
        pass
    else:
        with pytest.raises(WrongProof):
            daemon.conclude(answer, BOUND)
    device, daemon = both()
    answer = device.answer(daemon.hello(), BOUND)
    with pytest.raises(WrongProof):
        daemon.conclude(msgspec.structs.replace(answer, message=flipped(answer.message)), BOUND)
    device, daemon = both()
    answer = device.answer(daemon.hello(), BOUND)
    if at < len(answer.confirmation):
        with pytest.raises(WrongProof):
            daemon.conclude(msgspec.structs.replace(answer, confirmation=flipped(answer.confirmation)), BOUND)


@pytest.mark.promise("P-pairing-code")
def test_a_reflected_message_is_refused():
    _, daemon = both()
    hello = daemon.hello()
    reflected = b"A" + hello[1:]
    with pytest.raises(WrongProof):
        daemon.conclude(DeviceAnswer(message=reflected, confirmation=bytes(32)), BOUND)
    _, daemon = both()
    with pytest.raises(WrongProof):
        daemon.conclude(DeviceAnswer(message=daemon.hello(), confirmation=bytes(32)), BOUND)


def test_a_devices_own_confirmation_does_not_confirm_the_daemon():
    device, daemon = both()
    answer = device.answer(daemon.hello(), BOUND)
    with pytest.raises(WrongProof):
        device.conclude(answer.confirmation)


@pytest.mark.promise("P-pairing-code")
def test_an_answer_replayed_to_another_attempt_confirms_nothing():
    device, daemon = both()
    answer = device.answer(daemon.hello(), BOUND)
    daemon.conclude(answer, BOUND)
    _, another = both()
    another.hello()
    with pytest.raises(WrongProof):
        another.conclude(answer, BOUND)


def test_a_replayed_confirmation_does_not_convince_another_attempt():
    device, daemon = both()
    confirmation, _ = daemon.conclude(device.answer(daemon.hello(), BOUND), BOUND)
    other_device, other_daemon = both()
    other_device.answer(other_daemon.hello(), BOUND)
    with pytest.raises(WrongProof):
        other_device.conclude(confirmation)


def test_one_attempt_is_one_guess():
    device, daemon = both()
    answer = device.answer(daemon.hello(), BOUND)
    with pytest.raises(WrongProof):
        daemon.conclude(msgspec.structs.replace(answer, confirmation=bytes(32)), BOUND)
    with pytest.raises(ProofOutOfOrder):
        daemon.conclude(answer, BOUND)
    with pytest.raises(WrongProof):
        device.conclude(bytes(32))
    with pytest.raises(ProofOutOfOrder):
        device.conclude(bytes(32))


STEPS = {
    "daemon": {
        ProofEvent.SEND: lambda machine: machine.hello(),
        ProofEvent.RECEIVE: lambda machine: machine.conclude(
            DeviceAnswer(message=bytes(33), confirmation=bytes(32)), BOUND
        ),
    },
    "device": {
        ProofEvent.SEND: lambda machine: machine.answer(DaemonProof(DaemonExchange(stretched())).hello(), BOUND),
        ProofEvent.RECEIVE: lambda machine: machine.conclude(bytes(32)),
    },
}


@pytest.mark.parametrize("side", STEPS)
@pytest.mark.parametrize(("state", "event"), list(itertools.product(ProofState, ProofEvent)))
def test_every_step_in_every_state_is_in_the_table_or_refused(side, state, event):
    machine = both()[side == "daemon"]
    if state is not ProofState.FRESH:
        STEPS[side][ProofEvent.SEND](machine)
    if state is ProofState.ENDED:
        with pytest.raises(WrongProof):
            STEPS[side][ProofEvent.RECEIVE](machine)
    assert machine.state is state
    if (state, event) not in TRANSITIONS:
        with pytest.raises(ProofOutOfOrder):
            STEPS[side][event](machine)
        assert machine.state is state
        return
    with contextlib.suppress(WrongProof):
        STEPS[side][event](machine)
    assert machine.state is TRANSITIONS[state, event]


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=40), st.binary(max_size=40))
def test_made_up_answers_are_wrong_and_nothing_else(message, confirmation):
    _, daemon = both()
    daemon.hello()
    with pytest.raises(WrongProof):
        daemon.conclude(DeviceAnswer(message=message, confirmation=confirmation), BOUND)


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=40))
def test_made_up_hellos_are_malformed_or_lead_nowhere(message):
    device, _ = both()
    try:
        device.answer(message, BOUND)
    except MalformedProof:
        return
    with pytest.raises(WrongProof):
        device.conclude(bytes(32))


def test_a_salt_of_the_wrong_length_is_refused_by_the_device():
    device, daemon = both()
    with pytest.raises(MalformedProof):
        device.answer(daemon.hello(), msgspec.structs.replace(BOUND, salt=b""))


@given(st.text(max_size=8), st.text(max_size=8))
def test_no_two_conversations_have_one_transcript(first, second):
    one = msgspec.structs.replace(BOUND, facts=DeviceFacts(name=first, platform=second))
    moved = msgspec.structs.replace(BOUND, facts=DeviceFacts(name=first + second, platform=""))
    same = one.facts == moved.facts
    assert (transcript_of(one, b"d", b"e") == transcript_of(moved, b"d", b"e")) is same
    assert transcript_of(one, b"de", b"") != transcript_of(one, b"d", b"e")


def test_what_is_kept_of_the_secret_does_not_show_it():
    device, daemon = both()
    _, proved = daemon.conclude(device.answer(daemon.hello(), BOUND), BOUND)
    assert collect_digest(proved.collect) != proved.collect
    assert proved.collect.hex() not in repr(proved) and proved.comparison_code not in repr(proved)
