import os

import pytest

from fakes.node_state_harness import NodeStateHarness, code_record, pairing_record
from palyra.devicelink.pairing.code import PairingMethod, ServerAddress, parse_code, stretch
from palyra.identity.device import DeviceKind
from palyra.nodes.domain.records import PairingState
from palyra.nodes.pairing.rules import BadCodeLife, NotListening, UnknownPairing
from palyra.nodes.pairing.service import DecisionSignal, PairingEndpoint, PairingService

STEP = PairingEndpoint((ServerAddress("192.0.2.1", 7143),), "ab" * 32)


class FakeListener:
    def __init__(self):
        self.opened, self.refuses = 0, None

    async def open(self):
        if self.refuses is not None:
            raise self.refuses
        self.opened += 1
        return STEP


@pytest.fixture
async def peers(tmp_path):
    harness = NodeStateHarness(tmp_path)
    listener, learned = FakeListener(), []
    state = await harness.state()
    pairing = PairingService(
        state=state,
        open_endpoint=listener.open,
        random=os.urandom,
        decided=DecisionSignal(),
        learn=learned.append,
        ttl_seconds=600,
    )
    yield pairing, state, listener, learned, harness
    harness.close()


@pytest.mark.parametrize("method", list(PairingMethod))
async def test_a_code_is_shown_once_and_kept_only_stretched(peers, method):
    pairing, _, listener, learned, harness = peers
    made = await pairing.make_code(method, DeviceKind.WORKER, actor="user:o")
    code = parse_code(made.text.reveal())
    assert code.nameplate == made.record.nameplate and listener.opened == 1
    (kept,) = await pairing.codes()
    assert kept == made.record
    assert kept.stretched == stretch(code.secret, kept.stretched.salt)
    assert (kept.kind, kept.expires_ms - kept.created_ms) == (DeviceKind.WORKER, 600_000)
    secret = code.secret.reveal().encode()
    for path in harness.folder.iterdir():
        assert secret not in path.read_bytes(), path
    assert {code.secret, made.text} <= set(learned)
    if method is PairingMethod.QR:
        assert (code.addresses, code.ca_hash, code.kind) == (*STEP, DeviceKind.WORKER)


async def test_no_code_is_made_where_nobody_listens_or_its_life_is_out_of_bounds(peers):
    pairing, _, listener, _, _ = peers
    with pytest.raises(BadCodeLife):
        await pairing.make_code(PairingMethod.PIN, DeviceKind.NODE, actor="user:o", ttl_seconds=5)
    assert listener.opened == 0
    listener.refuses = NotListening("no")
    with pytest.raises(NotListening):
        await pairing.make_code(PairingMethod.PIN, DeviceKind.NODE, actor="user:o")
    assert await pairing.codes() == []


async def test_a_withdrawn_code_is_gone(peers):
    pairing, *_ = peers
    made = await pairing.make_code(PairingMethod.PIN, DeviceKind.NODE, actor="user:o")
    await pairing.withdraw_code(made.record.id, actor="user:o")
    assert await pairing.codes() == []


async def test_requests_are_listed_newest_first_and_expire_when_looked_at(peers):
    pairing, state, *_, harness = peers
    old, late = pairing_record(id="1"), pairing_record(id="2", expires_ms=5)
    code = code_record()
    await state.transact(lambda unit: [unit.pairings.put(old), unit.pairings.put(late), unit.codes.put(code)])
    found = [(one.id, one.state.value) for one in await pairing.pairings()]
    assert found == [
        ("2", "expired"),
        ("1", "pending_approval"),
    ]
    assert [one.id for one in await pairing.pairings(PairingState.PENDING_APPROVAL)] == ["1"]
    assert (await pairing.pairing("2")).state is PairingState.EXPIRED
    assert [kind for kind, _ in harness.events()] == ["pairing.expired"]
    with pytest.raises(UnknownPairing):
        await pairing.pairing("3")


async def test_decisions_are_recorded_with_who_made_them(peers):
    pairing, state, *_, harness = peers
    for id_ in ("1", "2"):
        await state.transact(lambda unit, id_=id_: unit.pairings.put(pairing_record(id=id_)))
    assert (await pairing.approve("1", actor="user:a", comparison_code="123456")).state is PairingState.APPROVED
    assert (await pairing.reject("2", actor="user:b", reason="why")).reason == "why"
    assert [kind for kind, _ in harness.events()] == ["pairing.approved", "pairing.rejected"]
