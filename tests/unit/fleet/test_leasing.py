from typing import Any

import msgspec
import pytest

from fakes.fleet_peers import EGRESS, OTHER, POLICY, SCOPE, WORKER, FleetPeers, numbered
from fakes.journal_harness import StillClock
from fakes.memory_fleet import MemoryFleet
from palyra.errors import PalyraError
from palyra.fleet.domain import commands
from palyra.fleet.domain.lease import LeaseOutcome, LeaseState, WorkerLease
from palyra.fleet.domain.manager import due
from palyra.fleet.domain.signed_statement import sign_statement
from palyra.fleet.domain.worker import WorkerLifecycleState as State
from palyra.fleet.domain.worker import WorkerRecord
from palyra.fleet.domain.workspace_scope import ArtifactRef
from palyra.fleet.store.port import Beat
from palyra.signing.dsse import BadSignature


async def refused(ledger: MemoryFleet, command: commands.FleetCommand) -> str:
    with pytest.raises(PalyraError) as raised:
        await ledger.decide(command)
    return raised.value.code


@pytest.fixture
async def worker(ledger: MemoryFleet, peers: FleetPeers, clock: StillClock) -> WorkerRecord:
    return await peers.ready(ledger, now_ms=clock.now)


@pytest.fixture
async def lease(ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord) -> WorkerLease:
    return await peers.leased(ledger, now_ms=clock.now)


async def reap(ledger: MemoryFleet, clock: StillClock, peers: FleetPeers) -> None:
    await ledger.decide_all(due(ledger.candidates(clock.now), POLICY, clock.now, peers.nonce))


async def lose(ledger: MemoryFleet, clock: StillClock, peers: FleetPeers) -> None:
    clock.now += POLICY.heartbeat_timeout_ms
    await reap(ledger, clock, peers)


async def beat_until(ledger: MemoryFleet, clock: StillClock, worker: WorkerRecord, instant_ms: int) -> None:
    clock.now = instant_ms
    await ledger.beat([Beat(worker_id=worker.worker_id, session=worker.session)])


async def test_the_deadline_is_the_shorter_of_what_was_asked_and_what_is_allowed(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord
) -> None:
    short = await peers.leased(ledger, now_ms=clock.now, timeout_ms=5)
    long = await peers.leased(ledger, now_ms=clock.now, timeout_ms=10**12)
    assert short.deadline_ms == short.granted_ms + 5
    assert long.deadline_ms == long.granted_ms + POLICY.lease_ttl_ms


@pytest.mark.promise("P-worker-once")
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"argument_digest": "00" * 32}, "worker_grant.other_call"),
        ({"tool": "fs.write"}, "worker_grant.other_call"),
        ({"run_id": numbered(3)}, "worker_grant.other_call"),
        ({"call_id": numbered(3)}, "worker_grant.other_call"),
        ({"principal": "agent:b"}, "worker_grant.other_call"),
        ({"grant_id": numbered(3)}, "worker_grant.unknown"),
        ({"needs": frozenset(("gpu",))}, "worker.lacks_capability"),
        ({"worker_id": numbered(77)}, "worker.unknown"),
        ({"inputs": (ArtifactRef(path="etc/x", digest_sha256="ab" * 32, size=1),)}, "worker_scope.denied"),
    ],
)
async def test_a_lease_that_is_not_what_was_granted(
    ledger: MemoryFleet,
    peers: FleetPeers,
    clock: StillClock,
    worker: WorkerRecord,
    changes: dict[str, Any],
    code: str,
) -> None:
    grant = peers.grant(clock.now)
    await ledger.decide(peers.issue(grant))
    assert await refused(ledger, peers.lease(WORKER, grant, **changes)) == code
    on_record = [payload["code"] for kind, payload in ledger.events() if kind == "lease.refused"]
    assert on_record == ([code] if code.startswith("worker_grant.") else [])
    # The grant is as good as before.
    await ledger.decide(peers.lease(WORKER, grant))


async def test_a_grant_has_an_end_and_an_id_of_its_own(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord
) -> None:
    grant = peers.grant(clock.now, expires_ms=clock.now)
    await ledger.decide(peers.issue(grant))
    assert await refused(ledger, peers.lease(WORKER, grant)) == "worker_grant.expired"
    assert await refused(ledger, peers.issue(grant)) == "worker_grant.repeated"


async def test_a_grant_may_be_issued_with_its_lease_and_is_used_by_it(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord
) -> None:
    grant = peers.grant(clock.now)
    lacking = peers.lease(WORKER, grant, grant=grant, needs=frozenset(("gpu",)))
    assert await refused(ledger, lacking) == "worker.lacks_capability"
    other = peers.lease(WORKER, grant, grant=grant, tool="fs.write")
    assert await refused(ledger, other) == "worker_grant.other_call"
    assert [kind for kind, _ in ledger.events() if kind.startswith("lease.")] == ["lease.refused"]
    await ledger.decide(peers.lease(WORKER, grant, grant=grant))
    kinds = [kind for kind, _ in ledger.events() if kind.startswith("lease.")]
    assert kinds == ["lease.refused", "lease.authorised", "lease.granted"]
    # It is on record as used: saying it again makes no second one.
    assert await refused(ledger, peers.lease(WORKER, grant, grant=grant)) == "worker_grant.used"


async def test_a_result_is_taken_once(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord, lease: WorkerLease
) -> None:
    message = peers.settle(lease, clock.now, worker.session, outcome=LeaseOutcome.FAILED, error_code="call.x")
    decision = await ledger.decide(message)
    assert decision.leases[0].lease.outcome is LeaseOutcome.FAILED and decision.worker is not None
    assert decision.worker.state is State.AVAILABLE
    events = len(ledger.events())
    assert await refused(ledger, message) == "lease.duplicate_result"
    assert len(ledger.events()) == events, "the answer was lost: nothing new was said"
    other = peers.settle(lease, clock.now, worker.session, output_digest="00" * 32)
    assert await refused(ledger, other) == "lease.duplicate_result"
    assert ledger.events()[-1][1]["code"] == "lease.duplicate_result"
    assert ledger.worker(WORKER).state is State.AVAILABLE


@pytest.mark.promise("P-worker-quarantine")
async def test_a_result_for_anothers_lease_condemns_its_sender_only(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord, lease: WorkerLease
) -> None:
    thief = await peers.ready(ledger, OTHER, now_ms=clock.now)
    own = await peers.leased(ledger, OTHER, now_ms=clock.now)
    stolen = peers.settle(lease, clock.now, thief.session, sender=OTHER)
    assert await refused(ledger, stolen) == "lease.wrong_worker"
    assert ledger.worker(OTHER).state is State.QUARANTINED
    assert ledger.lease(own.lease_id).state is LeaseState.FENCED
    assert ledger.worker(WORKER).state is State.BUSY and ledger.lease(lease.lease_id).is_open
    await ledger.decide(peers.settle(lease, clock.now, worker.session))


async def test_a_settlement_signed_by_another_key_or_about_another_lease(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord, lease: WorkerLease
) -> None:
    statement = peers.statement(lease, clock.now)
    forged = sign_statement(statement, peers.key(OTHER))
    assert await refused(ledger, peers.settling(lease.lease_id, WORKER, worker.session, forged)) == "signature.invalid"
    assert ledger.worker(WORKER).state is State.QUARANTINED
    assert ledger.lease(lease.lease_id).state is LeaseState.FENCED
    other = await peers.ready(ledger, OTHER, now_ms=clock.now)
    first, second = [await peers.leased(ledger, OTHER, now_ms=clock.now) for _ in range(2)]
    swapped = sign_statement(peers.statement(first, clock.now), peers.key(OTHER))
    message = peers.settling(second.lease_id, OTHER, other.session, swapped)
    assert await refused(ledger, message) == "lease.settlement_mismatch"
    assert ledger.worker(OTHER).state is State.QUARANTINED


async def test_the_fencing_number_must_be_the_leases(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord, lease: WorkerLease
) -> None:
    for fence in (lease.fence - 1, lease.fence + 1):
        assert await refused(ledger, peers.settle(lease, clock.now, worker.session, fence=fence)) == "lease.stale_fence"
    assert ledger.lease(lease.lease_id).is_open


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"output_bytes": 1_001}, "lease.result_too_large"),
        ({"output_bytes": -1}, "lease.result_too_large"),
        ({"artifacts": (ArtifactRef(path="etc/x", digest_sha256="ab" * 32, size=1),)}, "worker_scope.denied"),
        ({"artifacts": (ArtifactRef(path="src/x", digest_sha256="short", size=1),)}, "worker_artifact.malformed"),
        ({"artifacts": (ArtifactRef(path="../x", digest_sha256="ab" * 32, size=1),)}, "workspace.bad_path"),
    ],
)
async def test_a_result_beyond_its_bounds_is_refused_and_may_be_said_again(
    ledger: MemoryFleet,
    peers: FleetPeers,
    clock: StillClock,
    worker: WorkerRecord,
    lease: WorkerLease,
    changes: dict[str, Any],
    code: str,
) -> None:
    assert await refused(ledger, peers.settle(lease, clock.now, worker.session, **changes)) == code
    assert ledger.events()[-1] == (
        "lease.result_refused",
        {
            "lease_id": lease.lease_id,
            "worker_id": WORKER,
            "fence": lease.fence,
            "tool": lease.tool,
            "sender": WORKER,
            "code": code,
        },
    )
    await ledger.decide(peers.settle(lease, clock.now, worker.session, outcome=LeaseOutcome.FAILED))


async def test_a_read_only_lease_brings_no_artifacts(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord
) -> None:
    lease = await peers.leased(ledger, now_ms=clock.now, scope=SCOPE.parse("/srv", ("src",)))
    artifact = ArtifactRef(path="src/x", digest_sha256="ab" * 32, size=1)
    message = peers.settle(lease, clock.now, worker.session, artifacts=(artifact,))
    assert await refused(ledger, message) == "worker_scope.denied"


@pytest.mark.promise("P-worker-quarantine")
async def test_what_was_left_behind_quarantines_but_the_result_counts(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord, lease: WorkerLease
) -> None:
    other = await peers.leased(ledger, now_ms=clock.now)
    decision = await ledger.decide(peers.settle(lease, clock.now, worker.session, processes_left=1))
    assert decision.leases[0].lease.state is LeaseState.SETTLED
    assert ledger.worker(WORKER).state is State.QUARANTINED
    assert ledger.lease(other.lease_id).state is LeaseState.FENCED


async def test_a_made_up_cleanup_makes_the_result_worthless(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord, lease: WorkerLease
) -> None:
    message = peers.settle(lease, clock.now, worker.session, nonce="00" * 32)
    assert await refused(ledger, message) == "worker_cleanup.other_lease"
    assert ledger.worker(WORKER).state is State.QUARANTINED
    assert ledger.lease(lease.lease_id).state is LeaseState.FENCED


@pytest.mark.promise("P-worker-once")
async def test_an_orphans_result_is_refused_and_its_cleanup_counts(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord, lease: WorkerLease
) -> None:
    await lose(ledger, clock, peers)
    orphan = ledger.worker(WORKER)
    assert orphan.state is State.ORPHANED and orphan.owes == (lease.lease_id,) and not orphan.open_leases
    # On the connection that it had, it may not speak at all.
    assert await refused(ledger, peers.settle(lease, clock.now, worker.session)) == "worker.stale_session"
    back = await peers.ready(ledger, now_ms=clock.now)
    with pytest.raises(PalyraError, match="cleaned up"):
        await peers.leased(ledger, now_ms=clock.now)
    assert await refused(ledger, peers.settle(lease, clock.now, back.session)) == "lease.fenced"
    assert ledger.worker(WORKER).owes == ()
    assert (await peers.leased(ledger, now_ms=clock.now)).fence > lease.fence
    assert ledger.lease(lease.lease_id).state is LeaseState.FENCED


async def test_an_orphan_that_left_things_behind_is_quarantined_when_it_says_so(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, lease: WorkerLease
) -> None:
    await lose(ledger, clock, peers)
    back = await peers.ready(ledger, now_ms=clock.now)
    assert await refused(ledger, peers.settle(lease, clock.now, back.session, mounts_left=1)) == "lease.fenced"
    assert ledger.worker(WORKER).state is State.QUARANTINED


async def test_an_orphan_that_never_shows_its_cleanup_is_quarantined(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, lease: WorkerLease
) -> None:
    await lose(ledger, clock, peers)
    back = await peers.ready(ledger, now_ms=clock.now)
    await reap(ledger, clock, peers)
    assert ledger.worker(WORKER).state is State.AVAILABLE
    await beat_until(ledger, clock, back, clock.now + POLICY.settle_grace_ms)
    await reap(ledger, clock, peers)
    assert ledger.worker(WORKER).reason == "worker_cleanup.missing"


async def test_a_lease_that_never_arrived_is_disclaimed_and_its_worker_goes_on(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, lease: WorkerLease
) -> None:
    await lose(ledger, clock, peers)
    back = await peers.ready(ledger, now_ms=clock.now)
    decision = await ledger.decide(peers.disclaim(lease, back, clock.now))
    assert decision.leases[0].lease.state is LeaseState.FENCED and decision.leases[0].lease.disclaimed_ms == clock.now
    after = ledger.worker(WORKER)
    assert after.owes == () and after.state is State.AVAILABLE
    assert ("lease.disclaimed", WORKER) in [(kind, said["worker_id"]) for kind, said in ledger.events()[-1:]]
    await beat_until(ledger, clock, back, clock.now + POLICY.settle_grace_ms)
    await reap(ledger, clock, peers)
    assert (await peers.leased(ledger, now_ms=clock.now)).fence > lease.fence
    # Its call may have been given up long ago, and what is not idempotent is not tried again because of it.
    retry = commands.RetryLease(actor="palyrad", lease_id=lease.lease_id, grant_id=peers.next_id(), valid_ms=1_000)
    assert await refused(ledger, retry) == "lease.not_retryable"


async def test_each_of_several_leases_is_disclaimed_or_shown_clean_by_itself(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, lease: WorkerLease
) -> None:
    other = await peers.leased(ledger, now_ms=clock.now)
    await ledger.decide(peers.shows(other))
    await lose(ledger, clock, peers)
    back = await peers.ready(ledger, now_ms=clock.now)
    await ledger.decide(peers.disclaim(lease, back, clock.now))
    assert ledger.worker(WORKER).owes == (other.lease_id,)
    with pytest.raises(PalyraError, match="cleaned up"):
        await peers.leased(ledger, now_ms=clock.now)
    assert await refused(ledger, peers.settle(other, clock.now, back.session)) == "lease.fenced"
    assert ledger.worker(WORKER).owes == () and ledger.worker(WORKER).state is State.AVAILABLE


async def test_a_lease_that_expired_while_its_worker_was_cut_off_is_disclaimed_too(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord
) -> None:
    lease = await peers.leased(ledger, now_ms=clock.now, timeout_ms=1)
    await beat_until(ledger, clock, worker, lease.due_ms(POLICY) - 1)
    await ledger.decide(commands.EndSession(actor="w", worker_id=WORKER, session=worker.session))
    clock.now += 1
    await reap(ledger, clock, peers)
    assert ledger.lease(lease.lease_id).state is LeaseState.EXPIRED
    back = await peers.ready(ledger, now_ms=clock.now)
    await ledger.decide(peers.disclaim(lease, back, clock.now))
    assert ledger.worker(WORKER).owes == () and ledger.worker(WORKER).state is State.AVAILABLE


async def test_a_drained_worker_disclaims_and_stays_drained(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, lease: WorkerLease
) -> None:
    await ledger.decide(commands.DrainWorker(actor="operator", worker_id=WORKER))
    await lose(ledger, clock, peers)
    back = await peers.ready(ledger, now_ms=clock.now)
    await ledger.decide(peers.disclaim(lease, back, clock.now))
    assert ledger.worker(WORKER).owes == () and ledger.worker(WORKER).state is State.DRAINING


@pytest.mark.parametrize("when", ["while it ran", "while it was lost", "when it came back"])
async def test_who_showed_that_it_has_a_lease_cannot_disclaim_it(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, lease: WorkerLease, when: str
) -> None:
    if when == "while it ran":
        await ledger.decide(peers.shows(lease))
        first_ms = ledger.lease(lease.lease_id).taken_ms
        clock.now += 5
        await ledger.decide(peers.shows(lease))
        assert ledger.lease(lease.lease_id).taken_ms == first_ms > 0, "the first time is kept"
    await lose(ledger, clock, peers)
    if when == "while it was lost":
        await ledger.decide(peers.shows(lease))
    back = await peers.ready(ledger, now_ms=clock.now)
    if when == "when it came back":
        await ledger.decide(peers.shows(lease))
    assert await refused(ledger, peers.disclaim(lease, back, clock.now)) == "worker_cleanup.contradicted"
    after = ledger.worker(WORKER)
    assert (after.state, after.reason) == (State.QUARANTINED, "worker_cleanup.contradicted")
    assert not ledger.lease(lease.lease_id).disclaimed_ms


async def test_a_result_that_was_not_taken_shows_the_lease_as_well(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord, lease: WorkerLease
) -> None:
    large = peers.settle(lease, clock.now, worker.session, output_bytes=10**9)
    assert await refused(ledger, large) == "lease.result_too_large"
    await lose(ledger, clock, peers)
    back = await peers.ready(ledger, now_ms=clock.now)
    assert await refused(ledger, peers.disclaim(lease, back, clock.now)) == "worker_cleanup.contradicted"


@pytest.mark.parametrize("afterwards", ["settles", "shows"])
async def test_who_disclaimed_a_lease_and_then_has_it_is_quarantined(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, lease: WorkerLease, afterwards: str
) -> None:
    await lose(ledger, clock, peers)
    back = await peers.ready(ledger, now_ms=clock.now)
    await ledger.decide(peers.disclaim(lease, back, clock.now))
    held = await peers.leased(ledger, now_ms=clock.now)
    settles = peers.settle(lease, clock.now, back.session)
    assert await refused(ledger, settles if afterwards == "settles" else peers.shows(lease)) == (
        "worker_cleanup.contradicted"
    )
    assert ledger.worker(WORKER).reason == "worker_cleanup.contradicted"
    assert ledger.lease(held.lease_id).state is LeaseState.FENCED
    # What it shows after that is no news.
    entries = len(ledger.events())
    await ledger.decide(peers.shows(lease))
    assert len(ledger.events()) == entries


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"boot_id": "boot-0"}, "worker_cleanup.other_lease"),
        ({"session": 1}, "worker_cleanup.other_lease"),
        ({"worker_id": OTHER}, "worker_cleanup.other_lease"),
        ({"nonce": "00" * 32}, "worker_cleanup.other_lease"),
        ({"lease_id": numbered(77)}, "worker_cleanup.other_lease"),
        ({"fence": 99}, "worker_cleanup.other_lease"),
        ({"workspace": "8:1"}, "worker_cleanup.other_lease"),
        ({"ended_ms": 1, "checked_ms": 1}, "worker_cleanup.out_of_time"),
        ({"entries_left": 1}, "worker_cleanup.incomplete"),
        ({"processes_left": 2}, "worker_cleanup.incomplete"),
    ],
)
async def test_a_disclaimer_that_no_honest_and_clean_worker_makes_quarantines(
    ledger: MemoryFleet,
    peers: FleetPeers,
    clock: StillClock,
    lease: WorkerLease,
    changes: dict[str, Any],
    code: str,
) -> None:
    await lose(ledger, clock, peers)
    back = await peers.ready(ledger, now_ms=clock.now)
    said = peers.disclaim(lease, back, clock.now)
    statement = peers.disclaimer(lease, back, clock.now, **changes)
    assert await refused(ledger, msgspec.structs.replace(said, statement=statement)) == code
    assert ledger.worker(WORKER).state is State.QUARANTINED and ledger.worker(WORKER).reason == code


async def test_a_disclaimer_that_cannot_be_opened_quarantines(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, lease: WorkerLease
) -> None:
    await lose(ledger, clock, peers)
    back = await peers.ready(ledger, now_ms=clock.now)
    said = msgspec.structs.replace(peers.disclaim(lease, back, clock.now), statement=None, refusal=BadSignature("no"))
    assert await refused(ledger, said) == BadSignature.code
    assert ledger.worker(WORKER).state is State.QUARANTINED


async def test_a_disclaimer_counts_only_of_what_is_owed_and_on_an_attested_connection(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord, lease: WorkerLease
) -> None:
    assert await refused(ledger, peers.disclaim(lease, worker, clock.now)) == "lease.not_owed"
    assert ledger.lease(lease.lease_id).is_open and ledger.worker(WORKER).state is State.BUSY
    await lose(ledger, clock, peers)
    opened = (await ledger.decide(peers.open_session())).worker
    assert opened is not None
    assert await refused(ledger, peers.disclaim(lease, opened, clock.now)) == "worker.not_attested"
    assert await refused(ledger, peers.disclaim(lease, worker, clock.now)) == "worker.stale_session"
    back = (await ledger.decide(peers.present(opened, clock.now))).worker
    assert back is not None and back.owes == (lease.lease_id,)
    await ledger.decide(peers.disclaim(lease, back, clock.now))
    assert await refused(ledger, peers.disclaim(lease, back, clock.now)) == "lease.not_owed"
    assert ledger.worker(WORKER).state is State.AVAILABLE


async def test_anothers_lease_can_be_neither_disclaimed_nor_shown(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, lease: WorkerLease
) -> None:
    await lose(ledger, clock, peers)
    rogue = await peers.ready(ledger, OTHER, now_ms=clock.now)
    await ledger.decide(peers.shows(lease, OTHER))
    assert not ledger.lease(lease.lease_id).taken_ms
    assert await refused(ledger, peers.disclaim(lease, rogue, clock.now)) == "lease.wrong_worker"
    assert ledger.worker(OTHER).state is State.QUARANTINED and ledger.worker(WORKER).owes == (lease.lease_id,)


async def test_what_the_proxy_saw_outweighs_a_disclaimer(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, lease: WorkerLease
) -> None:
    await lose(ledger, clock, peers)
    back = await peers.ready(ledger, now_ms=clock.now)
    await ledger.decide(peers.disclaim(lease, back, clock.now))
    seen = f"egress.ended_lease example.org:443 lease {lease.lease_id}"
    await ledger.decide(commands.ReportViolation(actor="e", worker_id=WORKER, egress_id=EGRESS, violation=seen))
    assert ledger.worker(WORKER).reason == "worker.egress_violation"


async def test_a_worker_that_restarted_has_nothing_to_disclaim(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, lease: WorkerLease
) -> None:
    await lose(ledger, clock, peers)
    opened = (await ledger.decide(peers.open_session(boot="boot-2"))).worker
    assert opened is not None and opened.reason == "worker.crashed"
    assert await refused(ledger, peers.disclaim(lease, opened, clock.now)) == "worker.stale_session"
    assert ledger.worker(WORKER).state is State.QUARANTINED


async def test_a_deadline_voids_the_result_even_before_anyone_has_looked(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord, lease: WorkerLease
) -> None:
    await beat_until(ledger, clock, worker, lease.due_ms(POLICY))
    assert await refused(ledger, peers.settle(lease, clock.now, worker.session)) == "lease.late"
    assert ledger.lease(lease.lease_id).state is LeaseState.EXPIRED
    after = ledger.worker(WORKER)
    assert after.state is State.AVAILABLE and after.owes == (), "late, but clean"


async def test_a_worker_that_says_nothing_at_the_deadline_gets_no_more_until_it_shows_its_cleanup(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord, lease: WorkerLease
) -> None:
    await beat_until(ledger, clock, worker, lease.due_ms(POLICY))
    await reap(ledger, clock, peers)
    after = ledger.worker(WORKER)
    assert after.state is State.AVAILABLE and after.owes == (lease.lease_id,)
    with pytest.raises(PalyraError, match="cleaned up"):
        await peers.leased(ledger, now_ms=clock.now)
    await beat_until(ledger, clock, worker, clock.now + POLICY.settle_grace_ms)
    await reap(ledger, clock, peers)
    assert ledger.worker(WORKER).state is State.QUARANTINED


async def test_within_the_grace_a_worker_may_still_report(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord, lease: WorkerLease
) -> None:
    await beat_until(ledger, clock, worker, lease.due_ms(POLICY) - 10)
    await ledger.decide(peers.settle(lease, clock.now, worker.session, outcome=LeaseOutcome.TIMED_OUT))
    assert ledger.lease(lease.lease_id).outcome is LeaseOutcome.TIMED_OUT


async def test_a_worker_that_is_cut_off_at_the_deadline_is_orphaned(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord
) -> None:
    lease = await peers.leased(ledger, now_ms=clock.now, timeout_ms=100)
    await ledger.decide(commands.EndSession(actor="w", worker_id=WORKER, session=worker.session))
    clock.now = lease.due_ms(POLICY)
    await reap(ledger, clock, peers)
    assert ledger.lease(lease.lease_id).state is LeaseState.EXPIRED
    assert ledger.worker(WORKER).state is State.ORPHANED


async def test_a_worker_that_declines_has_done_nothing_and_the_call_goes_elsewhere(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord, lease: WorkerLease
) -> None:
    decline = commands.DeclineLease(
        actor="w",
        worker_id=WORKER,
        lease_id=lease.lease_id,
        session=worker.session,
        fence=lease.fence,
        reason="no room",
    )
    await ledger.decide(decline)
    assert ledger.worker(WORKER).state is State.AVAILABLE
    assert await refused(ledger, peers.settle(lease, clock.now, worker.session)) == "lease.ended"
    retry = commands.RetryLease(actor="palyrad", lease_id=lease.lease_id, grant_id=peers.next_id(), valid_ms=60_000)
    grant = (await ledger.decide(retry)).grant
    assert grant is not None and (grant.attempt, grant.argument_digest) == (2, lease.argument_digest)
    again = (await ledger.decide(peers.lease(WORKER, grant))).leases[0].lease
    assert again.attempt == 2
    twice = commands.RetryLease(actor="palyrad", lease_id=lease.lease_id, grant_id=peers.next_id(), valid_ms=1)
    assert await refused(ledger, twice) == "lease.not_retryable"


@pytest.mark.promise("P-worker-once")
async def test_a_lost_call_is_not_repeated_unless_that_is_harmless(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord, lease: WorkerLease
) -> None:
    harmless = await peers.leased(ledger, now_ms=clock.now, idempotent=True)
    await lose(ledger, clock, peers)
    for lost, code in ((lease, "lease.not_retryable"), (harmless, "")):
        retry = commands.RetryLease(actor="palyrad", lease_id=lost.lease_id, grant_id=peers.next_id(), valid_ms=1)
        if code:
            assert await refused(ledger, retry) == code
        else:
            await ledger.decide(retry)


async def test_a_cancelled_lease_is_still_settled_by_its_worker(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord, lease: WorkerLease
) -> None:
    cancel = commands.CancelLease(actor="palyrad", lease_id=lease.lease_id, reason="the caller left")
    await ledger.decide(cancel)
    await ledger.decide(cancel)
    assert [kind for kind, _ in ledger.events()].count("lease.cancelled") == 1
    await ledger.decide(peers.settle(lease, clock.now, worker.session, outcome=LeaseOutcome.CANCELLED))
    assert ledger.lease(lease.lease_id).outcome is LeaseOutcome.CANCELLED
    assert await refused(ledger, cancel) == "lease.ended"


async def test_nothing_is_said_about_leases_that_do_not_exist(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, worker: WorkerRecord, lease: WorkerLease
) -> None:
    signed = sign_statement(peers.statement(lease, clock.now), peers.key(WORKER))
    for command in (
        peers.settling(numbered(77), WORKER, worker.session, signed),
        commands.CancelLease(actor="palyrad", lease_id=numbered(77)),
        commands.ExpireLease(actor="palyrad", lease_id=numbered(77)),
        commands.RetryLease(actor="palyrad", lease_id=numbered(77), grant_id=numbered(78), valid_ms=1),
    ):
        assert await refused(ledger, command) == "lease.unknown"


async def test_a_lease_that_is_not_due_does_not_expire(
    ledger: MemoryFleet, clock: StillClock, lease: WorkerLease
) -> None:
    await ledger.decide(commands.ExpireLease(actor="palyrad", lease_id=lease.lease_id))
    assert ledger.lease(lease.lease_id).is_open
