"""Codes and requests inside one unit of work, without a store."""

import os

import msgspec
import pytest

from fakes.node_state_harness import code_record, node_record, pairing_record
from palyra.devicelink.limits import (
    MAX_LIVE_CODES,
    MAX_NODES,
    MAX_PENDING_PAIRINGS,
    MAX_WRONG_GUESSES,
    PAIRING_COLLECTION_MS,
    PAIRING_DECISION_MS,
)
from palyra.devicelink.pairing.code import DeviceFacts, PairingMethod, StretchedCode
from palyra.devicelink.pairing.proof import Proved, collect_digest
from palyra.identity.device import DeviceKind
from palyra.nodes.domain.records import CodeState, PairingAlreadyDecided, PairingEvent, PairingState
from palyra.nodes.pairing import rules
from palyra.nodes.pairing.rules import (
    BadCodeLife,
    BadDeviceFacts,
    CodeBurned,
    TooManyCodes,
    TooManyDevices,
    TooManyPairings,
    UnknownCode,
    UnknownPairing,
    WrongComparison,
)
from palyra.nodes.store.document import DocumentUnit, NodeDocument

NOW = 1_000_000
FACTS = DeviceFacts(name="a laptop", platform="linux")
STRETCHED = StretchedCode(salt=b"s", n=2, r=1, p=1, hash=b"h")
PROVED = Proved(comparison_code="123456", collect=b"c" * 32)
AGAIN = Proved(comparison_code="654321", collect=b"d" * 32)


class Unit(DocumentUnit):
    def __init__(self, now_ms=NOW):
        self.events = []
        super().__init__(NodeDocument(), now_ms, self.events.append)

    def kinds(self):
        return [event.kind for event in self.events]


def add_code(unit, **changes):
    options = {"method": PairingMethod.PIN, "kind": DeviceKind.NODE, "stretched": STRETCHED, "ttl_seconds": 60}
    return rules.add_code(unit, **{**options, **changes}, actor="user:o", random=os.urandom)


def claim(unit, code, key="key one", proved=PROVED):
    return rules.claim(
        unit, code.id, facts=FACTS, csr_der=b"csr", key_fingerprint=key, proved=proved, address="192.0.2.1"
    )


def test_a_code_is_found_by_its_nameplate_and_kind_until_its_time_is_up():
    unit = Unit()
    code = add_code(unit)
    assert rules.find_code(unit, code.nameplate, DeviceKind.NODE) == code
    for nameplate, kind in (
        ("999" if code.nameplate != "999" else "998", DeviceKind.NODE),
        (code.nameplate, DeviceKind.WORKER),
    ):
        with pytest.raises(UnknownCode):
            rules.find_code(unit, nameplate, kind)
    unit.now_ms = code.expires_ms
    with pytest.raises(UnknownCode):
        rules.find_code(unit, code.nameplate, DeviceKind.NODE)
    assert unit.kinds() == ["pairing.code_created"]


@pytest.mark.promise("P-limits")
def test_no_two_codes_have_one_nameplate_and_there_are_only_so_many():
    unit = Unit()
    codes = [add_code(unit) for _ in range(MAX_LIVE_CODES)]
    assert len({code.nameplate for code in codes}) == MAX_LIVE_CODES
    with pytest.raises(TooManyCodes):
        add_code(unit)
    rules.withdraw_code(unit, codes[0].id, actor="user:o")
    assert add_code(unit).nameplate not in {code.nameplate for code in codes}


@pytest.mark.promise("P-pairing-code")
@pytest.mark.parametrize("seconds", [0, 29, 86_401, -1])
def test_a_codes_life_has_bounds(seconds):
    with pytest.raises(BadCodeLife):
        add_code(Unit(), ttl_seconds=seconds)


@pytest.mark.promise("P-pairing-code")
def test_five_wrong_guesses_burn_a_code_and_the_right_one_comes_too_late():
    unit = Unit()
    code = add_code(unit)
    for _ in range(MAX_WRONG_GUESSES + 3):
        rules.note_wrong_guess(unit, code.id, "192.0.2.1")
    assert unit.codes.get(code.id).state is CodeState.BURNED
    assert unit.kinds().count("pairing.guess_failed") == MAX_WRONG_GUESSES
    assert unit.kinds().count("pairing.code_burned") == 1
    with pytest.raises(CodeBurned):
        claim(unit, code)
    with pytest.raises(CodeBurned):
        rules.find_code(unit, code.nameplate, DeviceKind.NODE)


def test_four_wrong_guesses_do_not():
    unit = Unit()
    code = add_code(unit)
    for _ in range(MAX_WRONG_GUESSES - 1):
        rules.note_wrong_guess(unit, code.id, "192.0.2.1")
    assert claim(unit, code) is not None


def test_a_claim_makes_a_request_and_uses_the_code():
    unit = Unit()
    code = add_code(unit)
    pairing = claim(unit, code)
    assert pairing.state is PairingState.PENDING_APPROVAL
    assert (pairing.kind, pairing.comparison_code, pairing.expires_ms) == (
        DeviceKind.NODE,
        "123456",
        NOW + PAIRING_DECISION_MS,
    )
    assert pairing.collect_sha256 == collect_digest(PROVED.collect)
    assert unit.codes.get(code.id).state is CodeState.USED
    assert unit.kinds()[-1] == "pairing.requested"


def test_the_same_key_finds_its_request_again_and_another_key_does_not():
    unit = Unit()
    code = add_code(unit)
    first = claim(unit, code)
    again = claim(unit, code, proved=AGAIN)
    assert again.id == first.id and again.device_id == first.device_id
    assert (again.comparison_code, again.collect_sha256) == ("654321", collect_digest(AGAIN.collect))
    assert claim(unit, code, key="key two") is None
    assert unit.pairings.get(first.id).refused_claims == 1
    assert unit.kinds()[-2:] == ["pairing.requested_again", "pairing.claim_refused"]
    assert len(unit.pairings.list()) == 1


def test_after_the_decision_the_code_that_was_compared_stays():
    unit = Unit()
    code = add_code(unit)
    first = claim(unit, code)
    rules.decide_pairing(unit, first.id, PairingEvent.APPROVE, actor="user:o")
    again = claim(unit, code, proved=AGAIN)
    assert (again.state, again.comparison_code) == (PairingState.APPROVED, "123456")


@pytest.mark.promise("P-limits")
def test_only_so_many_requests_wait():
    unit = Unit()
    for _ in range(MAX_PENDING_PAIRINGS):
        unit.pairings.put(pairing_record())
    code = add_code(unit)
    with pytest.raises(TooManyPairings):
        claim(unit, code)
    assert unit.codes.get(code.id).state is CodeState.LIVE


@pytest.mark.parametrize("changes", [{"state": CodeState.WITHDRAWN}, {"expires_ms": NOW}, {"state": CodeState.USED}])
def test_a_code_that_is_over_cannot_be_claimed(changes):
    unit = Unit()
    code = code_record(**{"expires_ms": NOW + 1, **changes})
    unit.codes.put(code)
    with pytest.raises(UnknownCode):
        claim(unit, code)


def test_a_decision_is_made_once():
    unit = Unit()
    pairing = claim(unit, add_code(unit))
    decided = rules.decide_pairing(unit, pairing.id, PairingEvent.REJECT, actor="user:o", reason="no")
    assert (decided.state, decided.decided_by, decided.reason, decided.decided_ms) == (
        PairingState.REJECTED, "user:o", "no", NOW,
    )  # fmt: skip
    for event in (PairingEvent.APPROVE, PairingEvent.REJECT):
        with pytest.raises(PairingAlreadyDecided):
            rules.decide_pairing(unit, pairing.id, event, actor="user:p")


def test_a_wrong_comparison_code_decides_nothing():
    unit = Unit()
    pairing = claim(unit, add_code(unit))
    with pytest.raises(WrongComparison):
        rules.decide_pairing(unit, pairing.id, PairingEvent.APPROVE, actor="user:o", comparison_code="000000")
    assert unit.pairings.get(pairing.id).state is PairingState.PENDING_APPROVAL
    decided = rules.decide_pairing(unit, pairing.id, PairingEvent.APPROVE, actor="user:o", comparison_code="123456")
    assert decided.expires_ms == NOW + PAIRING_COLLECTION_MS


def test_completing_makes_a_node_once():
    unit = Unit()
    pairing = claim(unit, add_code(unit))
    with pytest.raises(PairingAlreadyDecided):
        rules.complete_pairing(unit, pairing.id)
    rules.decide_pairing(unit, pairing.id, PairingEvent.APPROVE, actor="user:o")
    for _ in range(2):
        assert rules.complete_pairing(unit, pairing.id).state is PairingState.COMPLETED
    (node,) = unit.nodes.list()
    assert (node.id, node.name, node.kind, node.pairing_id) == (
        pairing.device_id,
        "a laptop",
        DeviceKind.NODE,
        pairing.id,
    )
    assert unit.kinds().count("pairing.completed") == 1


def test_what_nobody_decided_or_fetched_expires():
    unit = Unit()
    waiting, approved = claim(unit, add_code(unit)), claim(unit, add_code(unit))
    rules.decide_pairing(unit, approved.id, PairingEvent.APPROVE, actor="user:o")
    assert not rules.has_due(unit)
    unit.now_ms = NOW + max(PAIRING_DECISION_MS, PAIRING_COLLECTION_MS)
    assert rules.has_due(unit)
    with pytest.raises(PairingAlreadyDecided):
        rules.decide_pairing(unit, waiting.id, PairingEvent.APPROVE, actor="user:o")
    assert {pairing.state for pairing in unit.pairings.list()} == {PairingState.EXPIRED}
    assert unit.kinds().count("pairing.expired") == 2


@pytest.mark.promise("P-limits")
def test_there_is_room_for_so_many_devices_the_revoked_not_counted():
    unit = Unit()
    pairing = claim(unit, add_code(unit))
    nodes = [node_record() for _ in range(MAX_NODES)]
    for node in nodes:
        unit.nodes.put(node)
    with pytest.raises(TooManyDevices):
        rules.decide_pairing(unit, pairing.id, PairingEvent.APPROVE, actor="user:o")
    unit.nodes.put(msgspec.structs.replace(nodes[0], revoked_ms=1))
    rules.decide_pairing(unit, pairing.id, PairingEvent.APPROVE, actor="user:o")


def test_what_is_not_there_is_said_to_be_so():
    unit = Unit()
    with pytest.raises(UnknownPairing):
        rules.require_pairing(unit, "nothing")
    with pytest.raises(UnknownCode):
        rules.withdraw_code(unit, "nothing", actor="user:o")
    rules.note_wrong_guess(unit, "nothing", "192.0.2.1")
    assert unit.events == []


@pytest.mark.parametrize(
    "facts",
    [
        DeviceFacts(name=""),
        DeviceFacts(name="  "),
        DeviceFacts(name="x" * 65),
        DeviceFacts(name="a\nb"),
        DeviceFacts(name="a\x1b[2J"),
        DeviceFacts(name="\u202eevil"),
        DeviceFacts(name="zero\u200bwidth"),
        DeviceFacts(name="ok", platform="x" * 65),
        DeviceFacts(name="ok", software_version="1\x00"),
    ],
)
def test_a_name_that_a_person_could_misread_is_refused(facts):
    with pytest.raises(BadDeviceFacts):
        rules.check_facts(facts)


def test_ordinary_names_pass_in_any_script():
    for name in ("a laptop", "büro-pc", "机器", "x" * 64):
        assert rules.check_facts(DeviceFacts(name=name)).name == name


def test_no_event_holds_what_proves_anything():
    unit = Unit()
    claim(unit, add_code(unit))
    text = repr([event.payload for event in unit.events])
    for secret in (STRETCHED.hash, STRETCHED.salt, PROVED.collect, collect_digest(PROVED.collect)):
        assert repr(secret)[2:-1] not in text or len(secret) == 1
    assert "comparison" not in text
