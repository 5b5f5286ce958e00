"""WorkerService over real gRPC with real certificates: sessions, attestations, leases, settlements, their misuse."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from fakes.eventually import eventually
from fakes.fleet_server_harness import BUILD, PATIENCE, SETTINGS, FleetServerHarness, HandWorker, open_harness
from palyra.errors import PalyraError
from palyra.fleet import limits
from palyra.fleet.domain import commands
from palyra.fleet.domain.lease import LeaseLost, LeaseOutcome, LeaseState
from palyra.fleet.domain.placement import NoWorker
from palyra.identity.device import DeviceKind
from palyra.signing.tool_attestation import execution_sha256
from palyra.wire.worker.v1 import worker_pb2 as wire

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


async def lost(harness: FleetServerHarness, worker: HandWorker) -> None:
    """The worker falls silent and is given up."""
    await worker.hang_up()
    harness.clock.ahead_ms += TIMEOUT_MS
    await eventually(lambda: worker.record().state.value in ("orphaned", "offline"))


async def test_a_call_runs_on_a_worker_and_its_word_can_be_checked(
    harness: FleetServerHarness, worker: HandWorker
) -> None:
    await worker.online()
    call = harness.call()
    offer = await worker.receive("lease")
    assert (offer.tool, offer.tier, offer.principal) == ("echo", "builtin", "agent:a")
    assert 0 < offer.timeout_ms <= 60_000 and offer.fence == 1 and offer.scope.root == "/srv/work"
    await worker.say(accepted=wire.LeaseAccepted(lease_id=offer.lease_id, fence=offer.fence))
    assert (await worker.settle(offer)).code == ""
    report = await call
    assert report.settled.result == {"text": "hi"} and report.key_id == worker.key.key_id
    assert execution_sha256(report.settled.attestation) == report.settled.statement.execution_sha256
    assert report.key_der == worker.key.public_key()
    assert harness.parts.ledger.lease(offer.lease_id).outcome is LeaseOutcome.SUCCEEDED
    assert harness.metrics.ended == ["settled"]
    # The answer was lost: the same words again change nothing.
    assert (await worker.settle(offer)).code == "lease.duplicate_result"


async def test_calls_beyond_the_slots_wait_their_turn(harness: FleetServerHarness, worker: HandWorker) -> None:
    worker.slots = 1
    await worker.online()
    calls = [harness.call(call_id=f"01CALL{number}", run_id=f"01RUN{number}") for number in range(4)]
    for _ in calls:
        offer = await worker.receive("lease")
        assert len(worker.record().open_leases) == 1
        await worker.settle(offer)
    assert {(await call).lease.state for call in calls} == {LeaseState.SETTLED}
    assert harness.parts.calls().waiting == 0


async def test_without_a_worker_that_can_a_call_is_refused_at_once(
    harness: FleetServerHarness, worker: HandWorker
) -> None:
    with pytest.raises(NoWorker):
        await harness.call()
    await worker.online()
    with pytest.raises(NoWorker):
        await harness.call(needs=frozenset(("tool.other",)))
    worker.slots = 0
    await worker.beat()
    await eventually(lambda: worker.record().slots == 0)
    with pytest.raises(NoWorker):
        await harness.call(timeout_ms=200)


async def test_a_worker_speaks_for_itself_only_and_is_a_worker(harness: FleetServerHarness, worker: HandWorker) -> None:
    other = await harness.worker("another")
    await worker.open(claimed=other.worker_id)
    assert await worker.ended() is DENIED
    node = await harness.worker("a node", DeviceKind.NODE)
    await node.open()
    assert await node.ended() is DENIED
    await worker.online()
    await worker.say(heartbeat=wire.Heartbeat(), claimed=other.worker_id)
    assert await worker.ended() is DENIED
    assert {"nodes.other_device", "nodes.wrong_kind"} <= set(harness.nodes.refused)
    for each in (other, node):
        await each.close()


async def test_the_first_message_is_a_hello_of_this_version(harness: FleetServerHarness, worker: HandWorker) -> None:
    await worker.open(hello=wire.Hello(protocol_version=9))
    assert await worker.ended() is grpc.StatusCode.INVALID_ARGUMENT
    worker.rpc = worker.stub()
    worker.call = worker.rpc.Work(timeout=PATIENCE)
    await worker.say(heartbeat=wire.Heartbeat())
    assert await worker.ended() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_revoked_worker_is_cut(harness: FleetServerHarness, worker: HandWorker) -> None:
    await worker.online()
    await harness.nodes.identities.revoke(worker.device.device_id, reason="gone", actor="user:operator")
    assert await worker.ended() in (DENIED, grpc.StatusCode.UNAUTHENTICATED)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"build_digest_sha256": "00" * 32}, "worker_attestation.build_digest"),
        ({"nonce": "00" * 32}, "worker_attestation.stale_nonce"),
        ({"worker_id": "01ANOTHER"}, "worker_attestation.wrong_worker"),
    ],
)
async def test_a_worker_that_attests_wrongly_is_quarantined_until_released_and_attested(
    harness: FleetServerHarness, worker: HandWorker, changes: dict[str, str], code: str
) -> None:
    await worker.open()
    challenge = await worker.receive("challenge")
    answer = await worker.attest(challenge.nonce, **changes)
    assert answer.code == code
    assert await worker.ended() is DENIED
    assert worker.record().state.value == "quarantined"
    # It may connect and is not asked for anything, over a restart of the daemon too.
    await harness.restart()
    await worker.open()
    await worker.receive("welcome")
    await worker.beat()
    assert not worker.heard
    with pytest.raises(NoWorker):
        await harness.call()
    await harness.parts.decide(commands.ReleaseWorker(actor="user:operator", worker_id=worker.worker_id))
    challenge = await worker.receive("challenge")
    assert (await worker.attest(challenge.nonce)).code == ""
    call = harness.call()
    await worker.settle(await worker.receive("lease"))
    assert (await call).settled.result == {"text": "hi"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"result_json": b'{"text":"ho"}'}, "lease.settlement_mismatch"),
        ({"error_json": b'{"code":"x"}'}, "lease.settlement_mismatch"),
        ({"attestation_json": b"{}"}, "lease.settlement_mismatch"),
        ({"call_id": "01OTHER"}, "lease.settlement_mismatch"),
        ({"argument_digest": "00" * 32}, "lease.settlement_mismatch"),
        ({"statement": wire.SignedStatement(payload=b"{}", signature=b"x")}, "signature.invalid"),
        ({"nonce": "00" * 32}, "worker_cleanup.other_lease"),
    ],
)
async def test_a_settlement_that_contradicts_itself_quarantines(
    harness: FleetServerHarness, worker: HandWorker, changes: dict[str, Any], code: str
) -> None:
    await worker.online()
    call = harness.call(idempotent=False)
    offer = await worker.receive("lease")
    if "nonce" in changes:
        offer.nonce = changes["nonce"]
        changes = {}
    assert (await worker.settle(offer, **changes)).code == code
    assert await worker.ended() is DENIED
    with pytest.raises(LeaseLost):
        await call
    assert worker.record().state.value == "quarantined"


async def test_an_incomplete_cleanup_counts_as_a_result_and_quarantines(
    harness: FleetServerHarness, worker: HandWorker
) -> None:
    await worker.online()
    call = harness.call()
    await worker.settle(await worker.receive("lease"), processes_left=1)
    assert (await call).settled.result == {"text": "hi"}
    assert await worker.ended() is DENIED
    assert "worker_cleanup.incomplete" in worker.record().reason


async def test_more_workspaces_than_leases_contradict_the_cleanup(
    harness: FleetServerHarness, worker: HandWorker
) -> None:
    await worker.online()
    await worker.beat(workspaces=1)
    assert await worker.ended() is DENIED
    assert worker.record().reason == "worker_cleanup.contradicted"


async def test_another_workers_lease_cannot_be_settled(harness: FleetServerHarness, worker: HandWorker) -> None:
    await worker.online()
    call = harness.call()
    offer = await worker.receive("lease")
    thief = await (await harness.worker("a thief")).online()
    assert (await thief.settle(offer)).code == "lease.wrong_worker"
    assert await thief.ended() is DENIED
    assert thief.record().state.value == "quarantined"
    await worker.settle(offer)
    assert (await call).lease.worker_id == worker.worker_id
    await thief.close()


async def test_a_lost_lease_is_tried_again_where_that_is_harmless_and_late_words_do_not_count(
    harness: FleetServerHarness, worker: HandWorker
) -> None:
    await worker.online()
    call = harness.call()
    offer = await worker.receive("lease")
    await lost(harness, worker)
    assert harness.parts.ledger.lease(offer.lease_id).state is LeaseState.FENCED
    with pytest.raises(NoWorker):
        await call
    await worker.open(open_ids=(offer.lease_id,))
    assert list((await worker.receive("welcome")).void_lease_ids) == [offer.lease_id]
    await worker.attest((await worker.receive("challenge")).nonce)
    # It owes the cleanup, and gets nothing before it shows it.
    with pytest.raises(NoWorker):
        await harness.call()
    assert (await worker.settle(offer)).code == "lease.fenced"
    again = harness.call(call_id="01AGAIN")
    await worker.settle(await worker.receive("lease"))
    assert (await again).lease.attempt == 1


async def test_a_lost_lease_goes_to_another_worker(harness: FleetServerHarness, worker: HandWorker) -> None:
    await worker.online()
    call = harness.call()
    first = await worker.receive("lease")
    other = await (await harness.worker("another")).online()
    await worker.hang_up()
    harness.clock.ahead_ms += TIMEOUT_MS - 1_000
    await other.beat()
    harness.clock.ahead_ms += 2_000
    offer = await other.receive("lease")
    assert offer.call_id == first.call_id and offer.lease_id != first.lease_id and offer.fence > first.fence
    await other.settle(offer)
    report = await call
    assert (report.lease.worker_id, report.lease.attempt) == (other.worker_id, 2)
    await other.close()


async def test_what_may_have_run_is_not_repeated(harness: FleetServerHarness, worker: HandWorker) -> None:
    await worker.online()
    call = harness.call(idempotent=False)
    await worker.receive("lease")
    await lost(harness, worker)
    with pytest.raises(LeaseLost) as error:
        await call
    assert "not idempotent" in error.value.message


async def test_a_worker_that_reconnects_settles_once(harness: FleetServerHarness, worker: HandWorker) -> None:
    await worker.online()
    call = harness.call(idempotent=False)
    offer = await worker.receive("lease")
    await worker.hang_up()
    await worker.open(open_ids=(offer.lease_id,))
    await worker.receive("welcome")
    # Nothing counts before the attestation.
    assert (await worker.settle(offer)).code == "worker.not_attested"
    await worker.attest((await worker.receive("challenge")).nonce)
    assert (await worker.settle(offer)).code == ""
    assert (await call).settled.result == {"text": "hi"}


async def test_an_offer_that_never_arrived_is_made_again(harness: FleetServerHarness, worker: HandWorker) -> None:
    await worker.online()
    call = harness.call(idempotent=False)
    offer = await worker.receive("lease")
    await worker.hang_up()
    await worker.online()
    again = await worker.receive("lease")
    assert (again.lease_id, again.fence) == (offer.lease_id, offer.fence)
    await worker.settle(again)
    await call


async def test_an_offer_that_never_arrived_and_is_void_is_disclaimed(
    harness: FleetServerHarness, worker: HandWorker
) -> None:
    await worker.online()
    call = harness.call(idempotent=False)
    await eventually(lambda: worker.record().open_leases)
    await worker.given_up()
    with pytest.raises(LeaseLost):
        await call
    await worker.online()
    owed = await worker.receive("owed")
    assert worker.record().owes == (owed.lease_id,)
    with pytest.raises(NoWorker):
        await harness.call()
    assert (await worker.disclaim(owed)).code == ""
    assert worker.record().owes == () and worker.record().state.value == "available"
    assert [one["lease_id"] for one in harness.events("lease.disclaimed")] == [owed.lease_id]
    lease = harness.parts.ledger.lease(owed.lease_id)
    assert lease.state is LeaseState.FENCED and lease.disclaimed_ms and not lease.retried_as
    # Beyond the time in which a cleanup has to be shown it is still there, and works.
    harness.clock.ahead_ms += SETTINGS.policy(BUILD).settle_grace_ms
    await worker.beat()
    await harness.parts.sessions.reap()
    again = harness.call(call_id="01AGAIN")
    await worker.settle(await worker.receive("lease"))
    assert (await again).settled.result == {"text": "hi"}


async def test_what_the_worker_names_or_has_shown_is_not_asked_for(
    harness: FleetServerHarness, worker: HandWorker
) -> None:
    await worker.online()
    calls = [harness.call(idempotent=False, call_id=f"01CALL{number}") for number in range(3)]
    named, shown, unknown = [await worker.receive("lease") for _ in calls]
    await worker.say(output=wire.OutputChunk(lease_id=shown.lease_id, fence=shown.fence, stream=1, data=b"x"))
    await worker.beat()
    await worker.given_up()
    await asyncio.gather(*calls, return_exceptions=True)
    await worker.online(open_ids=(named.lease_id,))
    assert (await worker.receive("owed")).lease_id == unknown.lease_id
    await worker.beat()
    assert not [one for one in worker.heard if one.WhichOneof("command") == "owed"]
    assert set(worker.record().owes) == {named.lease_id, shown.lease_id, unknown.lease_id}


async def test_a_lease_that_its_worker_showed_and_does_not_name_is_not_given_out_again(
    harness: FleetServerHarness, worker: HandWorker
) -> None:
    """It ran, nobody knows how far: neither this worker nor another gets it a second time."""
    await worker.online()
    call = harness.call(idempotent=False)
    offer = await worker.receive("lease")
    await worker.say(output=wire.OutputChunk(lease_id=offer.lease_id, fence=offer.fence, stream=1, data=b"x"))
    await worker.beat()
    await worker.hang_up()
    await worker.online()
    await worker.beat()
    assert not [one for one in worker.heard if one.WhichOneof("command") == "lease"]
    assert harness.parts.ledger.lease(offer.lease_id).is_open
    harness.clock.ahead_ms += 61_000 + SETTINGS.policy(BUILD).settle_grace_ms
    await eventually(lambda: not harness.parts.ledger.lease(offer.lease_id).is_open)
    with pytest.raises(LeaseLost):
        await call


async def test_a_crash_during_a_lease_quarantines(harness: FleetServerHarness, worker: HandWorker) -> None:
    await worker.online()
    call = harness.call(idempotent=False)
    await worker.receive("lease")
    await worker.hang_up()
    worker.boot_id = "boot-2"
    await worker.open()
    assert await worker.ended() is DENIED
    with pytest.raises(LeaseLost):
        await call
    assert worker.record().reason == "worker.crashed"


async def test_a_newer_connection_ends_the_older(harness: FleetServerHarness, worker: HandWorker) -> None:
    await worker.online()
    older = worker.call
    await worker.online()
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        while await older.read() is not grpc.aio.EOF:
            pass
    assert ended.value.code() is DENIED
    await worker.beat()


async def test_a_declined_lease_is_offered_to_the_next(harness: FleetServerHarness, worker: HandWorker) -> None:
    await worker.online()
    call = harness.call(idempotent=False)
    offer = await worker.receive("lease")
    await worker.say(declined=wire.LeaseDeclined(lease_id=offer.lease_id, fence=offer.fence, reason="no room"))
    again = await worker.receive("lease")
    assert again.lease_id != offer.lease_id
    await worker.say(declined=wire.LeaseDeclined(lease_id=again.lease_id, fence=again.fence, reason="no room"))
    with pytest.raises(PalyraError) as error:
        await call
    assert error.value.code == "lease.not_taken"


async def test_a_call_that_is_stopped_stops_its_worker(harness: FleetServerHarness, worker: HandWorker) -> None:
    await worker.online()
    call = harness.call()
    offer = await worker.receive("lease")
    call.cancel()
    cancel = await worker.receive("cancel")
    assert (cancel.lease_id, cancel.fence) == (offer.lease_id, offer.fence)
    await worker.settle(offer, outcome=LeaseOutcome.CANCELLED, error={"code": "call.cancelled", "message": "stopped"})
    with pytest.raises(asyncio.CancelledError):
        await call
    assert harness.parts.ledger.lease(offer.lease_id).outcome is LeaseOutcome.CANCELLED


async def test_a_new_attestation_on_the_same_connection_takes_no_lease_back(
    harness: FleetServerHarness, worker: HandWorker
) -> None:
    """The worker stops a call that nobody waits for any more, and still has to show that it cleaned up."""
    await worker.online()
    call = harness.call(idempotent=False)
    offer = await worker.receive("lease")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await worker.receive("cancel")
    await harness.parts.decide(commands.Challenge(actor="palyrad", worker_id=worker.worker_id, nonce="ab" * 32))
    assert (await worker.attest((await worker.receive("challenge")).nonce)).code == ""
    await harness.parts.sessions.batcher.settle()
    assert harness.parts.ledger.lease(offer.lease_id).state is LeaseState.CANCELLING
    assert worker.record().open_leases == (offer.lease_id,)


async def test_a_restart_loses_no_lease(harness: FleetServerHarness, worker: HandWorker) -> None:
    await worker.online()
    call = harness.call()
    offer = await worker.receive("lease")
    call.cancel()
    await harness.restart()
    await worker.open(open_ids=(offer.lease_id,))
    await worker.receive("welcome")
    await worker.attest((await worker.receive("challenge")).nonce)
    assert (await worker.settle(offer)).code == ""
    assert harness.parts.ledger.lease(offer.lease_id).state is LeaseState.SETTLED


@pytest.mark.promise("P-worker-once")
async def test_what_a_dead_daemon_left_open_is_fenced_by_the_next(
    harness: FleetServerHarness, worker: HandWorker
) -> None:
    await worker.online()
    call = harness.call()
    offer = await worker.receive("lease")
    call.cancel()
    await worker.hang_up()
    await harness.close()
    harness.clock.ahead_ms += TIMEOUT_MS
    await harness.open()
    await eventually(lambda: not harness.parts.ledger.lease(offer.lease_id).is_open)
    assert harness.parts.ledger.lease(offer.lease_id).state is LeaseState.FENCED


async def test_operators_drain_and_resume(harness: FleetServerHarness, worker: HandWorker) -> None:
    await worker.online()
    call = harness.call()
    offer = await worker.receive("lease")
    await harness.parts.decide(commands.DrainWorker(actor="user:o", worker_id=worker.worker_id, reason="new disk"))
    with pytest.raises(NoWorker):
        await harness.call()
    await worker.settle(offer)
    await call
    await harness.parts.decide(commands.ResumeWorker(actor="user:o", worker_id=worker.worker_id))
    await worker.attest((await worker.receive("challenge")).nonce)
    call = harness.call()
    await worker.settle(await worker.receive("lease"))
    await call


async def test_a_worker_leaves_the_fleet(harness: FleetServerHarness, worker: HandWorker) -> None:
    await worker.online()
    request = wire.LeaveFleetRequest(device_id=worker.worker_id, reason="sold")
    await worker.rpc.LeaveFleet(request, timeout=PATIENCE)
    assert await worker.ended() is DENIED
    assert worker.record().state.value == "removed" and harness.unpaired == [worker.worker_id]
    await worker.open()
    assert await worker.ended() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_certificate_is_renewed_on_the_connection(harness: FleetServerHarness, worker: HandWorker) -> None:
    await worker.online()
    request = wire.RenewCertificateRequest(
        device_id=worker.worker_id, csr_der=worker.device.key.csr(), generation=worker.device.issued.generation
    )
    renewed = await worker.rpc.RenewCertificate(request, timeout=PATIENCE)
    assert renewed.generation == worker.device.issued.generation + 1
    worker.device.adopt(renewed)
    await worker.online()


async def test_output_is_kept_while_the_call_runs(harness: FleetServerHarness, worker: HandWorker) -> None:
    await worker.online()
    call = harness.call()
    offer = await worker.receive("lease")
    chunk = wire.OutputChunk(lease_id=offer.lease_id, fence=offer.fence, stream=1, offset=0, data=b"half")
    await worker.say(output=chunk)
    stale = wire.OutputChunk(lease_id=offer.lease_id, fence=offer.fence + 1, stream=1, offset=4, data=b"other")
    await worker.say(output=stale)
    await worker.beat(workspaces=1)
    assert harness.parts.output.tail(offer.lease_id, 1) == b"half"
    await worker.settle(offer)
    await call
    assert len(harness.parts.output._tails) == 0


@pytest.mark.promise("P-worker-once")
async def test_nothing_is_kept_of_leases_that_end_without_their_worker(
    harness: FleetServerHarness, worker: HandWorker
) -> None:
    await worker.online()
    call = harness.call(idempotent=False)
    offer = await worker.receive("lease")
    await worker.say(output=wire.OutputChunk(lease_id=offer.lease_id, fence=offer.fence, stream=1, data=b"half"))
    await worker.beat(workspaces=1)
    assert len(harness.parts.output._tails) == 1 and len(harness.parts.calls()._pending) == 1
    await lost(harness, worker)
    with pytest.raises(LeaseLost):
        await call
    assert len(harness.parts.output._tails) == 0 and len(harness.parts.calls()._pending) == 0


@pytest.mark.promise("P-worker-once")
async def test_nothing_is_kept_of_a_call_that_was_stopped_before_its_lease_was_refused(
    harness: FleetServerHarness, worker: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await worker.online()
    ledger = harness.parts.ledger
    asked, go_on = asyncio.Event(), asyncio.Event()
    decide_all = ledger.decide_all

    async def later(all_of: Any) -> Any:
        if any(isinstance(one, commands.LeaseWork) for one in all_of):
            asked.set()
            await go_on.wait()
        return await decide_all(all_of)

    monkeypatch.setattr(ledger, "decide_all", later)
    call = harness.call()
    await asked.wait()
    draining = asyncio.create_task(decide_all([commands.DrainWorker(actor="user:o", worker_id=worker.worker_id)]))
    await draining
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    go_on.set()
    await eventually(lambda: len(harness.parts.calls()._pending) == 0)
    assert not harness.events("lease.granted")


@pytest.mark.promise("P-worker-once")
async def test_what_ended_long_ago_is_forgotten_as_fast_as_it_came(
    harness: FleetServerHarness, worker: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("palyra.fleet.store.fleet_tables", "palyra.daemon.fleet_wiring"):
        monkeypatch.setattr(f"{module}.MAX_PER_ROUND", 2)
    await worker.online()
    for number in range(5):
        call = harness.call(call_id=f"01CALL{number}")
        await worker.settle(await worker.receive("lease"))
        await call
    call = harness.call()
    offer = await worker.receive("lease")
    await harness.parts.prune()
    assert harness.parts.ledger.lease(offer.lease_id).is_open
    harness.clock.ahead_ms += limits.KEPT_AFTER_END_MS + 1_000_000
    await eventually(lambda: not harness.parts.ledger.lease(offer.lease_id).is_open)
    await harness.parts.prune()
    assert [one.lease_id for one in harness.parts.ledger.leases(only_open=False)] == [offer.lease_id]
    with pytest.raises(PalyraError):
        await call


async def test_an_attestation_is_asked_for_again_before_it_lapses(
    harness: FleetServerHarness, worker: HandWorker
) -> None:
    await worker.online()
    harness.clock.ahead_ms += round(SETTINGS.attestation_seconds * 1000 * 3 / 4)
    challenge = await worker.receive("challenge") if (await worker.beat()) else None
    assert challenge is not None
    assert (await worker.attest(challenge.nonce)).code == ""


async def test_an_event_that_the_daemon_does_not_know_is_counted_as_refused(
    harness: FleetServerHarness, worker: HandWorker
) -> None:
    await worker.online()
    session = harness.parts.sessions.session(worker.worker_id)
    assert session is not None and session.refused == 0
    await worker.say()
    await eventually(lambda: session.refused == 1)
