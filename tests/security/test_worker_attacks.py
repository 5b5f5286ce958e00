"""A worker that lies, or speaks in another's name, over real mutual TLS: what it says does not count, it is found out,
and the journal has it. What its egress proxy sees is in test_worker_egress_attacks."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from fakes.eventually import eventually
from fakes.fleet_server_harness import BUILD, PATIENCE, EnvelopeKey, FleetServerHarness, HandWorker, open_harness
from fakes.identity_harness import DeviceKey
from palyra.fleet.agent.facts import own_build
from palyra.fleet.domain import commands
from palyra.fleet.domain.lease import LeaseLost, LeaseState
from palyra.fleet.domain.placement import NoWorker
from palyra.fleet.domain.policy import WorkerFleetSettings
from palyra.fleet.domain.workspace_scope import ArtifactRef
from palyra.wire.worker.v1 import worker_pb2 as wire

pytestmark = pytest.mark.promise("P-worker-attested")

DENIED = grpc.StatusCode.PERMISSION_DENIED
TIMEOUT_MS = 16_000


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[FleetServerHarness]:
    async with asyncio.timeout(4 * PATIENCE), open_harness(tmp_path) as opened:
        yield opened


@pytest.fixture
async def worker(harness: FleetServerHarness) -> AsyncIterator[HandWorker]:
    made = await harness.worker()
    yield made
    await made.close()


@pytest.fixture
async def rogue(harness: FleetServerHarness) -> AsyncIterator[HandWorker]:
    made = await harness.worker("a rogue")
    yield made
    await made.close()


async def is_distrusted(worker: HandWorker, code: str) -> None:
    assert await worker.ended() is DENIED
    record = worker.record()
    assert (record.state.value, record.attested, record.connected) == ("quarantined", None, False)
    assert code in record.reason
    with pytest.raises(NoWorker):
        await worker.harness.call()


async def test_without_settings_only_the_daemons_own_build_gets_work(tmp_path: Path) -> None:
    settings = WorkerFleetSettings(require_egress_binding=False)
    async with asyncio.timeout(4 * PATIENCE), open_harness(tmp_path, settings) as harness:
        changed, same = await harness.worker("changed"), await harness.worker("same")
        await changed.open()
        answer = await changed.attest((await changed.receive("challenge")).nonce)
        assert answer.code == "worker_attestation.build_digest"
        await is_distrusted(changed, "worker_attestation.build_digest")
        await same.open()
        answer = await same.attest((await same.receive("challenge")).nonce, build_digest_sha256=own_build())
        assert answer.code == ""
        assert same.record().attested is not None
        for each in (changed, same):
            await each.close()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"build_digest_sha256": "ee" * 32}, "worker_attestation.build_digest"),
        ({"build_digest_sha256": ""}, "worker_attestation.build_digest"),
        ({"sdk_protocol_version": 99}, "worker_attestation.sdk_protocol"),
        ({"wit_abi_version": "palyra:plugins@9.9.9"}, "worker_attestation.wit_abi"),
        ({"issued_ms": 1, "expires_ms": 2}, "worker_attestation.expired"),
    ],
)
async def test_a_worker_that_is_not_what_was_demanded_gets_no_work(
    harness: FleetServerHarness, worker: HandWorker, changes: dict[str, Any], code: str
) -> None:
    await worker.open()
    answer = await worker.attest((await worker.receive("challenge")).nonce, **changes)
    assert answer.code == code
    await is_distrusted(worker, code)
    assert [one["code"] for one in harness.events("worker.attestation_refused")] == [code]


async def test_a_recorded_attestation_is_worth_nothing_later(harness: FleetServerHarness, worker: HandWorker) -> None:
    """The worker was honest then, and is something else now: what it signed then answered another challenge."""
    await worker.open()
    recorded = worker.attestation((await worker.receive("challenge")).nonce)
    await worker.say(attestation=recorded)
    assert (await worker.receive("attestation_answer")).code == ""
    await worker.open()
    await worker.receive("challenge")
    await worker.say(attestation=recorded)
    assert (await worker.receive("attestation_answer")).code == "worker_attestation.stale_nonce"
    await is_distrusted(worker, "worker_attestation.stale_nonce")


@pytest.mark.parametrize("said", [b'{"egress_id":"\xff"}', b'{"a":' + b"[" * 20_000, b"{", b""])
async def test_an_attestation_that_cannot_be_read_is_refused_as_any(
    harness: FleetServerHarness, worker: HandWorker, said: bytes
) -> None:
    """Who the worker's proxy would be is looked up before the signature is: that reads what anybody may have sent."""
    await worker.open()
    good = worker.attestation((await worker.receive("challenge")).nonce)
    good.payload = said
    await worker.say(attestation=good)
    assert (await worker.receive("attestation_answer")).code == "worker_attestation.signature"
    await is_distrusted(worker, "worker_attestation.signature")


async def test_anothers_attestation_is_worth_nothing(
    harness: FleetServerHarness, worker: HandWorker, rogue: HandWorker
) -> None:
    """Signed by an honest worker for the very challenge that the rogue was given."""
    await rogue.open()
    nonce = (await rogue.receive("challenge")).nonce
    await rogue.say(attestation=worker.attestation(nonce, worker_id=rogue.worker_id))
    assert (await rogue.receive("attestation_answer")).code == "worker_attestation.signature"
    await is_distrusted(rogue, "worker_attestation.signature")


async def test_anothers_certificate_without_its_key_ends_in_the_handshake(
    harness: FleetServerHarness, worker: HandWorker, rogue: HandWorker
) -> None:
    """A certificate is no secret. Whoever has it and not the key does not get as far as a word."""
    for key, chain in (
        (rogue.device.key, worker.device.issued.certificate_pem),
        (DeviceKey(), worker.device.issued.certificate_pem),
    ):
        try:
            rpc = rogue.stub(key=key, chain=chain)
            call = rpc.Work(timeout=PATIENCE)
            await call.write(wire.WorkerBatch(device_id=worker.worker_id, sequence=1))
            await call.read()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, ValueError) as refused:
            assert getattr(refused, "code", lambda: grpc.StatusCode.UNAVAILABLE)() is grpc.StatusCode.UNAVAILABLE
        else:
            raise AssertionError("it was let in")
    assert len(harness.parts.sessions) == 0


async def test_a_copied_key_shows_because_only_one_connection_counts(
    harness: FleetServerHarness, worker: HandWorker
) -> None:
    """With key and certificate copied the thief is the worker; but the two throw each other out, and the one that holds
    a lease of the other's life is found to have crashed."""
    await worker.online()
    call = harness.call(idempotent=False)
    await worker.receive("lease")
    thief = HandWorker(harness, worker.device)
    thief.boot_id = "another machine"
    await thief.open()
    assert await thief.ended() is DENIED
    with pytest.raises(LeaseLost):
        await call
    assert worker.record().reason == "worker.crashed"


async def test_a_result_under_anothers_signature_is_not_believed(
    harness: FleetServerHarness, worker: HandWorker, rogue: HandWorker
) -> None:
    """An outer statement of its own around an attestation that another key signed: there would be no word of the worker
    beside the daemon's that anybody could check."""
    await worker.online()
    call = harness.call(idempotent=False)
    offer = await worker.receive("lease")
    honest, worker.key = worker.key, EnvelopeKey(rogue.device.key)
    borrowed = worker.settlement(offer)
    worker.key = honest
    own = worker.settlement(offer)
    own.attestation_json = borrowed.attestation_json
    await worker.say(settlement=own)
    assert (await worker.receive("settlement_answer")).code == "lease.settlement_mismatch"
    with pytest.raises(LeaseLost):
        await call
    await is_distrusted(worker, "lease.settlement_mismatch")


async def test_a_result_after_fencing_counts_neither_late_nor_under_a_newer_fence(
    harness: FleetServerHarness, worker: HandWorker
) -> None:
    await worker.online()
    call = harness.call(idempotent=False)
    offer = await worker.receive("lease")
    await worker.hang_up()
    harness.clock.ahead_ms += TIMEOUT_MS
    await eventually(lambda: not harness.parts.ledger.lease(offer.lease_id).is_open)
    with pytest.raises(LeaseLost):
        await call
    await worker.online(open_ids=(offer.lease_id,))
    assert (await worker.settle(offer, fence=offer.fence + 1)).code == "lease.stale_fence"
    assert (await worker.settle(offer)).code == "lease.fenced"
    lease = harness.parts.ledger.lease(offer.lease_id)
    assert lease.state is LeaseState.FENCED and lease.outcome is None and lease.output_digest == ""
    assert [one["code"] for one in harness.events("lease.result_refused")] == ["lease.stale_fence", "lease.fenced"]


async def test_a_cleanup_that_is_claimed_before_the_call_ended_or_for_another_is_a_lie(
    harness: FleetServerHarness, worker: HandWorker
) -> None:
    await worker.online()
    call = harness.call(idempotent=False)
    offer = await worker.receive("lease")
    assert (await worker.settle(offer, ended_ms=harness.clock.now_ms(), checked_ms=1)).code.startswith(
        "worker_cleanup."
    )
    with pytest.raises(LeaseLost):
        await call
    await is_distrusted(worker, "worker_cleanup.")


async def shown_by(how: str, worker: HandWorker, offer: Any) -> None:
    """The worker betrays that it has the lease."""
    about = {"lease_id": offer.lease_id, "fence": offer.fence}
    if how == "accepted":
        await worker.say(accepted=wire.LeaseAccepted(**about))
    elif how == "output":
        await worker.say(output=wire.OutputChunk(stream=1, data=b"half", **about))
    elif how == "files":
        await worker.rpc.FindMissingArtifacts(
            wire.FindMissingArtifactsRequest(device_id=worker.worker_id, **about), timeout=PATIENCE
        )
    elif how == "result without its files":
        artifact = ArtifactRef(path="out", digest_sha256="ab" * 32, size=3)
        assert (await worker.settle(offer, artifacts=(artifact,))).code == "worker_artifact.unknown"
    elif how == "result that is too large":
        assert (await worker.settle(offer, "x" * 20_000)).code == "lease.result_too_large"
    await worker.beat()


@pytest.mark.promise("P-worker-quarantine")
@pytest.mark.parametrize(
    "how",
    ["accepted", "output", "files", "result without its files", "result that is too large", "named", "named before"],
)
@pytest.mark.parametrize("restarted", [False, True], ids=["", "and the daemon restarted"])
async def test_who_had_a_lease_does_not_get_away_with_saying_that_it_never_came(
    harness: FleetServerHarness, worker: HandWorker, how: str, restarted: bool
) -> None:
    await worker.online()
    call = harness.call(idempotent=False)
    offer = await worker.receive("lease")
    await shown_by(how, worker, offer)
    if how == "named before":
        await worker.hang_up()
        await worker.online(open_ids=(offer.lease_id,))
    await worker.given_up()
    with pytest.raises(LeaseLost):
        await call
    if restarted:
        await harness.restart()
    await worker.online(open_ids=(offer.lease_id,) if how == "named" else ())
    assert (await worker.disclaim(offer)).code == "worker_cleanup.contradicted"
    await is_distrusted(worker, "worker_cleanup.contradicted")
    assert not harness.events("lease.disclaimed")


@pytest.mark.promise("P-worker-quarantine")
@pytest.mark.parametrize("how", ["accepted", "output", "files", "result"])
async def test_who_said_that_a_lease_never_came_and_then_has_it_is_found_out(
    harness: FleetServerHarness, worker: HandWorker, how: str
) -> None:
    await worker.online()
    call = harness.call(idempotent=False)
    offer = await worker.receive("lease")
    await worker.given_up()
    with pytest.raises(LeaseLost):
        await call
    await worker.online()
    assert (await worker.disclaim(await worker.receive("owed"))).code == ""
    if how == "result":
        assert (await worker.settle(offer)).code == "worker_cleanup.contradicted"
    elif how == "files":
        with pytest.raises(grpc.aio.AioRpcError):
            await shown_by(how, worker, offer)
    else:
        about = {"lease_id": offer.lease_id, "fence": offer.fence}
        said = wire.LeaseAccepted(**about) if how == "accepted" else wire.OutputChunk(stream=1, data=b"x", **about)
        await worker.say(**{how: said})
    await is_distrusted(worker, "worker_cleanup.contradicted")


async def test_a_workspace_that_is_left_contradicts_the_word_that_a_lease_never_came(
    harness: FleetServerHarness, worker: HandWorker
) -> None:
    await worker.online()
    call = harness.call(idempotent=False)
    await worker.receive("lease")
    await worker.given_up()
    with pytest.raises(LeaseLost):
        await call
    await worker.online()
    assert (await worker.disclaim(await worker.receive("owed"))).code == ""
    await worker.say(heartbeat=wire.Heartbeat(workspaces=1, slots=4))
    await is_distrusted(worker, "worker_cleanup.contradicted")


@pytest.mark.parametrize(
    ("lie", "code"),
    [
        ({"session": 1}, "worker_cleanup.other_lease"),
        ({"boot_id": "boot-0"}, "worker_cleanup.other_lease"),
        ({"nonce": "00" * 32}, "worker_cleanup.other_lease"),
        ({"fence": 99}, "worker_cleanup.other_lease"),
        ({"worker_id": "01ANOTHER"}, "worker_cleanup.other_lease"),
        ({"checked_ms": 1}, "worker_cleanup.out_of_time"),
        ({"processes_left": 1}, "worker_cleanup.incomplete"),
        ({"signer": "rogue"}, "signature"),
    ],
)
async def test_a_word_that_is_recorded_borrowed_or_made_up_does_not_clear_a_worker(
    harness: FleetServerHarness, worker: HandWorker, rogue: HandWorker, lie: dict[str, Any], code: str
) -> None:
    await worker.online()
    call = harness.call(idempotent=False)
    await worker.receive("lease")
    await worker.given_up()
    with pytest.raises(LeaseLost):
        await call
    await worker.online()
    owed = await worker.receive("owed")
    changes = {"signer": rogue.key} if "signer" in lie else lie
    assert code in (await worker.disclaim(owed, **changes)).code
    await is_distrusted(worker, code)
    assert not harness.events("lease.disclaimed")


@pytest.mark.promise("P-worker-quarantine")
async def test_who_restarted_or_stays_silent_about_a_lease_is_quarantined_as_ever(
    harness: FleetServerHarness, worker: HandWorker, rogue: HandWorker
) -> None:
    for each in (worker, rogue):
        await each.online()
        call = harness.call(idempotent=False)
        await each.receive("lease")
        await each.given_up()
        with pytest.raises(LeaseLost):
            await call
    worker.boot_id = "boot-2"
    await worker.open()
    await is_distrusted(worker, "worker.crashed")
    await rogue.online()
    owed = await rogue.receive("owed")
    assert rogue.record().owes == (owed.lease_id,)
    harness.clock.ahead_ms += harness.settings.policy(BUILD).settle_grace_ms
    await is_distrusted(rogue, "worker_cleanup.missing")


@pytest.mark.promise("P-worker-quarantine")
@pytest.mark.parametrize("how", ["never cleaned up", "not named", "reported", "of another life"])
async def test_who_is_let_out_of_quarantine_and_keeps_a_workspace_is_found_out(
    harness: FleetServerHarness, worker: HandWorker, how: str
) -> None:
    """What it was taken it may still be cleaning up after, as long as it says so and no longer than the grace."""
    await worker.online()
    call = harness.call(idempotent=False)
    offer = await worker.receive("lease")
    odd = commands.QuarantineWorker(actor="operator", worker_id=worker.worker_id, reason="looks odd")
    await harness.parts.decide(odd)
    with pytest.raises(LeaseLost):
        await call
    assert await worker.ended() is DENIED
    await harness.parts.decide(commands.ReleaseWorker(actor="operator", worker_id=worker.worker_id))
    worker.boot_id = "boot-2" if how == "of another life" else worker.boot_id
    await worker.online(open_ids=() if how == "not named" else (offer.lease_id,))
    if how == "never cleaned up":
        await worker.beat(workspaces=1)
        await harness.parts.sessions.batcher.settle()
        assert worker.record().state.value == "available"
        harness.clock.ahead_ms += harness.settings.policy(BUILD).settle_grace_ms
        await eventually(lambda: not worker.record().written_off)
    elif how == "reported":
        assert (await worker.settle(offer)).code == "lease.fenced"
    await worker.say(heartbeat=wire.Heartbeat(workspaces=1, slots=4))
    await is_distrusted(worker, "worker_cleanup.contradicted")


async def test_nothing_that_is_said_without_an_attestation_counts(
    harness: FleetServerHarness, worker: HandWorker
) -> None:
    """Neither work for it nor words about work: it is a stranger with a certificate."""
    await worker.online()
    call = harness.call(idempotent=False)
    offer = await worker.receive("lease")
    await worker.open(open_ids=(offer.lease_id,))
    await worker.receive("challenge")
    await worker.beat(workspaces=1)
    assert (await worker.settle(offer)).code == "worker.not_attested"
    with pytest.raises(NoWorker):
        await harness.call(timeout_ms=200)
    assert not call.done() and harness.parts.ledger.lease(offer.lease_id).is_open
    call.cancel()
