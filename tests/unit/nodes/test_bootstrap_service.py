"""The bootstrap service without its listener: attempts, their ends, and what waiting answers."""

import asyncio

import msgspec
import pytest

from fakes.identity_harness import DeviceKey
from fakes.pairing_harness import FACTS, OPERATOR, PairingHarness
from palyra.devicelink.limits import MAX_PAIRING_SESSIONS, PAIRING_SESSION_SECONDS
from palyra.devicelink.pairing.code import stretch
from palyra.devicelink.pairing.messages import Begin, Finish, Wait
from palyra.devicelink.pairing.proof import Bound, DeviceExchange, DeviceProof, WrongProof, hash_certificate
from palyra.identity.device import DeviceKind
from palyra.nodes.domain.rate_limits import TooManyAttempts
from palyra.nodes.pairing.rules import SessionGone, UnknownCode, UnknownPairing
from palyra.nodes.pairing.service import DecisionSignal

HERE = "192.0.2.1"


@pytest.fixture
async def harness(tmp_path):
    async with PairingHarness(tmp_path).running() as harness:
        yield harness


def begin_of(code):
    return Begin(version=1, nameplate=code.nameplate, kind=DeviceKind.NODE)


def finish_of(harness, code, hello, key, **changes):
    csr = key.csr()
    leaf = harness.served.served().leaf_hashes[-1]
    bound = Bound(
        method=code.method,
        kind=DeviceKind.NODE,
        nameplate=code.nameplate,
        salt=hello.salt,
        ca_hash=hash_certificate(hello.ca_der),
        leaf_hash=leaf,
        csr_der=csr,
        facts=FACTS,
    )
    proof = DeviceProof(DeviceExchange(stretch(code.secret, hello.salt)))
    answer = proof.answer(hello.message, bound)
    finish = Finish(
        session=hello.session,
        message=answer.message,
        confirmation=answer.confirmation,
        csr_der=csr,
        facts=FACTS,
        leaf_hash=leaf,
    )
    return proof, msgspec.structs.replace(finish, **changes)


async def proved(harness, code, key=None):
    hello = await harness.service.begin(begin_of(code), HERE)
    proof, finish = finish_of(harness, code, hello, key or DeviceKey())
    finished = await harness.service.finish(finish, HERE)
    return finished, proof.conclude(finished.confirmation)


async def test_an_attempt_can_be_concluded_once(harness):
    _, code = await harness.code()
    hello = await harness.service.begin(begin_of(code), HERE)
    _, finish = finish_of(harness, code, hello, DeviceKey())
    outcomes = await asyncio.gather(*(harness.service.finish(finish, HERE) for _ in range(5)), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Finished"] + ["SessionGone"] * 4


async def test_an_attempt_has_its_time(harness):
    _, code = await harness.code()
    hello = await harness.service.begin(begin_of(code), HERE)
    harness.clock.forward(PAIRING_SESSION_SECONDS)
    with pytest.raises(SessionGone):
        await harness.service.finish(finish_of(harness, code, hello, DeviceKey())[1], HERE)
    assert harness.events("pairing.guess_failed") == []


async def test_attempts_are_bounded_and_the_oldest_goes(harness):
    _, code = await harness.code()
    first = await harness.service.begin(begin_of(code), HERE)
    for number in range(MAX_PAIRING_SESSIONS):
        harness.clock.forward(0.3)
        await harness.service.begin(begin_of(code), f"198.51.100.{number}")
    with pytest.raises(SessionGone):
        await harness.service.finish(finish_of(harness, code, first, DeviceKey())[1], HERE)


@pytest.mark.parametrize(
    "change",
    [
        {"facts": msgspec.structs.replace(FACTS, name="another")},
        {"leaf_hash": "0" * 64},
        {"confirmation": bytes(32)},
        {"message": bytes(33)},
        {"csr_der": "another key"},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_whatever_was_changed_on_the_way_is_a_wrong_guess(harness, change):
    _, code = await harness.code()
    hello = await harness.service.begin(begin_of(code), HERE)
    if change.get("csr_der"):
        change = {"csr_der": DeviceKey().csr()}
    _, finish = finish_of(harness, code, hello, DeviceKey(), **change)
    with pytest.raises(WrongProof):
        await harness.service.finish(finish, HERE)
    ((_, payload),) = harness.events("pairing.guess_failed")
    assert (payload["wrong_guesses"], payload["address"]) == (1, HERE)
    assert harness.refusals == [("pairing.wrong_code", HERE)]


async def test_a_certificate_request_that_asks_for_more_is_refused_before_the_proof(harness):
    from cryptography import x509

    _, code = await harness.code()
    hello = await harness.service.begin(begin_of(code), HERE)
    key = DeviceKey()
    _, finish = finish_of(harness, code, hello, key)
    bad = key.csr(x509.BasicConstraints(ca=True, path_length=None))
    with pytest.raises(Exception) as refused:
        await harness.service.finish(msgspec.structs.replace(finish, csr_der=bad), HERE)
    assert refused.value.code.startswith("identity.")
    assert await harness.pairing.pairings() == []


async def test_unknown_nameplates_count_against_the_address(harness):
    with pytest.raises(UnknownCode):
        await harness.service.begin(Begin(version=1, nameplate="000", kind=DeviceKind.NODE), HERE)
    for _ in range(30):
        with pytest.raises((UnknownCode, TooManyAttempts)):
            await harness.service.begin(Begin(version=1, nameplate="000", kind=DeviceKind.NODE), HERE)
    _, code = await harness.code()
    with pytest.raises(TooManyAttempts):
        await harness.service.begin(begin_of(code), HERE)
    await harness.service.begin(begin_of(code), "203.0.113.5")


async def test_waiting_answers_only_whoever_proved_the_code(harness):
    _, code = await harness.code()
    finished, keys = await proved(harness, code)
    for pairing_id, collect in ((finished.pairing_id, bytes(32)), ("another", keys.collect)):
        with pytest.raises(UnknownPairing):
            await harness.service.wait(Wait(pairing_id=pairing_id, collect=collect), HERE)
    answer = await harness.service.wait(Wait(pairing_id=finished.pairing_id, collect=keys.collect), HERE)
    assert answer.state == "pending_approval"


async def test_a_decision_wakes_who_waits_also_one_of_another_process(harness):
    _, code = await harness.code()
    finished, keys = await proved(harness, code)
    waiting = asyncio.create_task(
        harness.service.wait(Wait(pairing_id=finished.pairing_id, collect=keys.collect, wait_ms=30_000), HERE)
    )
    await asyncio.sleep(0)
    other = type(harness.pairing)(
        state=harness.nodes,
        open_endpoint=harness.open,
        random=bytes,
        decided=DecisionSignal(),
        learn=lambda secret: None,
        ttl_seconds=60,
    )
    await other.approve(finished.pairing_id, actor=OPERATOR)
    assert (await waiting).state == "completed"


async def test_an_answer_is_the_same_each_time_and_issues_one_certificate(harness):
    _, code = await harness.code()
    finished, keys = await proved(harness, code)
    await harness.pairing.approve(finished.pairing_id, actor=OPERATOR)
    ask = Wait(pairing_id=finished.pairing_id, collect=keys.collect)
    answers = await asyncio.gather(*(harness.service.wait(ask, HERE) for _ in range(4)))
    assert len({answer.certificate_pem for answer in answers}) == 1
    assert len(harness.identity.devices()) == 1
    assert len(harness.events("pairing.completed")) == 1


async def test_a_certificate_waits_until_there_is_somewhere_to_go_with_it(harness):
    _, code = await harness.code()
    finished, keys = await proved(harness, code)
    await harness.pairing.approve(finished.pairing_id, actor=OPERATOR)
    harness.service.node_port = lambda: 0
    ask = Wait(pairing_id=finished.pairing_id, collect=keys.collect)
    assert (await harness.service.wait(ask, HERE)).state == "pending_approval"
    assert harness.identity.devices() == []


async def test_a_request_that_expired_says_so(harness):
    _, code = await harness.code()
    finished, keys = await proved(harness, code)
    harness.clock.now += 25 * 3_600_000
    answer = await harness.service.wait(Wait(pairing_id=finished.pairing_id, collect=keys.collect), HERE)
    assert (answer.state, answer.certificate_pem) == ("expired", b"")
