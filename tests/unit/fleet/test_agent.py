"""A worker's agent on real TLS: leases run, told once, over connections that come and go."""

import asyncio
import hashlib
import threading
from pathlib import Path

import msgspec
import pytest

from fakes.eventually import eventually
from fakes.worker_agent_harness import PATIENCE, POLICY, worker_agent_harness
from palyra.daemon.settings import Settings
from palyra.devicelink import limits as device_limits
from palyra.fleet import limits
from palyra.fleet.agent.lease import LeaseNote, NoRoom
from palyra.fleet.agent.note_folder import NoteFolder
from palyra.fleet.domain import commands
from palyra.fleet.domain.lease import LeaseOutcome, LeaseState
from palyra.sandbox.settings import SandboxSettings
from palyra.wire.worker.v1 import worker_pb2 as wire

ECHO = {"text": "hi"}
SHELLS = Settings(sandbox=SandboxSettings(allow_interpreters=True))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_limits, "FIRST_DELAY_MS", 50)


async def test_a_call_is_run_told_in_signed_words_and_forgotten(tmp_path: Path) -> None:
    async with worker_agent_harness(tmp_path) as harness, harness.running():
        await harness.online()
        lease = await harness.fleet.lease(harness.worker_id, "echo", ECHO)
        report = await harness.fleet.settled(lease)
        assert report.answer == "" and report.result == ECHO and report.error is None
        assert report.statement.outcome is LeaseOutcome.SUCCEEDED
        assert (
            report.attestation.tool == "echo" and report.attestation.executor == f"worker/{harness.worker_id}/builtin"
        )
        assert report.attestation.receipt[0]["layer"] == "worker"
        assert harness.fleet.ledger.lease(lease.lease_id).state is LeaseState.SETTLED
        await harness.fleet.until(lambda: not harness.agent._machine.open_ids)
        assert harness.scratch_names() == [] and not list(harness.home.path("leases").glob("*.json"))
        assert {beat.workspaces for beat in harness.fleet.beats} <= {0, 1}
        assert harness.fleet.beats_with_reports == 1, "a heartbeat costs no message of its own where another is sent"


async def test_a_program_sees_its_files_writes_others_and_both_are_gone_afterwards(tmp_path: Path) -> None:
    argv = {"command": "sh", "args": ["-c", "cat src/in.txt > out.txt; echo loud; ln -s / out.link"]}
    async with worker_agent_harness(tmp_path, settings=SHELLS) as harness, harness.running():
        await harness.online()
        fleet = harness.fleet
        inputs = (fleet.store("src/in.txt", b"hello\n" * 500), fleet.store("empty", b""))
        lease = await fleet.lease(harness.worker_id, "process.run", argv, inputs=inputs, read_only=False)
        report = await fleet.settled(lease)
        assert report.answer == "" and report.error is None, report.error
        assert report.result["exit_code"] == 0 and report.result["stdout"] == "loud\n"
        assert [each.path for each in report.statement.artifacts] == ["out.txt"]
        assert fleet.artifacts[report.statement.artifacts[0].digest_sha256] == b"hello\n" * 500
        assert report.statement.artifacts[0].digest_sha256 not in fleet.uploaded, "the daemon had these bytes already"
        assert "1 not_files" in report.attestation.receipt[-1]["got"]
        assert fleet.output[lease.lease_id] == b"loud\n"
        proof = report.statement.cleanup
        assert (proof.entries_left, proof.processes_left, proof.mounts_left) == (0, 0, 0) and proof.workspace
        assert harness.scratch_names() == []


async def test_what_cannot_be_run_is_declined(tmp_path: Path) -> None:
    async with worker_agent_harness(tmp_path) as harness, harness.running(slots=1):
        await harness.online()
        fleet = harness.fleet
        await fleet.lease(harness.worker_id, "sleep", {"seconds": 30})
        for changes in ({"tool": "no.such"}, {"arguments_json": b'{"text":"other"}'}, {}):
            count = len(fleet.declined)
            offer = {"lease_id": f"0{count:025d}", "fence": 9, "nonce": "0" * 64, "timeout_ms": 1000, **changes}
            scope = wire.WorkspaceScope(root="/srv/work", allowed_paths=["."], read_only=True)
            raw = b'{"text":"hi"}'
            base = {"tool": "echo", "arguments_json": raw, "argument_digest": hashlib.sha256(raw).hexdigest()}
            fleet.send(lease=wire.LeaseOffer(scope=scope, **{**base, **offer}))
            await fleet.until(lambda count=count: len(fleet.declined) > count)
        reasons = [each.reason.partition(":")[0] for each in fleet.declined]
        assert reasons == ["worker_offer.tool_not_offered", "worker_offer.malformed", "worker_offer.no_slot"]


async def test_a_result_outlives_a_lost_connection_and_counts_once(tmp_path: Path) -> None:
    async with worker_agent_harness(tmp_path) as harness, harness.running():
        await harness.online()
        fleet = harness.fleet
        lease = await fleet.lease(harness.worker_id, "sleep", {"seconds": 0.5})
        await fleet.until(lambda: harness.agent._machine.running)
        await fleet.stop_listening()
        await eventually(lambda: not harness.agent._machine.running)
        await fleet.listen()
        report = await fleet.settled(lease)
        assert report.answer == "" and report.statement.outcome is LeaseOutcome.SUCCEEDED
        assert list(fleet.hellos[-1].open_lease_ids) == [lease.lease_id]
        assert fleet.hellos[0].boot_id == fleet.hellos[-1].boot_id


async def test_an_answer_that_got_lost_is_asked_for_again(tmp_path: Path) -> None:
    async with worker_agent_harness(tmp_path) as harness, harness.running():
        await harness.online()
        fleet = harness.fleet
        fleet.holding = ["silence", "worker.not_attested"]
        lease = await fleet.lease(harness.worker_id, "echo", ECHO)
        await fleet.until(lambda: len(fleet.holding) == 1)
        fleet.cut()
        await fleet.until(lambda: not fleet.holding)
        fleet.cut()
        assert (await fleet.settled(lease)).answer == ""
        await eventually(lambda: not harness.agent._machine.open_ids)


async def test_a_result_that_is_not_taken_is_told_as_a_failure_once(tmp_path: Path) -> None:
    async with worker_agent_harness(tmp_path) as harness, harness.running():
        await harness.online()
        harness.fleet.holding = ["lease.result_too_large"]
        lease = await harness.fleet.lease(harness.worker_id, "echo", ECHO)
        report = await harness.fleet.settled(lease)
        assert report.answer == "" and report.statement.outcome is LeaseOutcome.FAILED and report.result is None
        assert report.statement.error_code == "lease.result_too_large" == (report.error or {})["code"]


async def test_a_lease_that_a_hello_named_before_it_could_not_be_noted_is_told_of_until_it_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fills up takes its time to say so. A refusal could be lost with the line; an end is told again."""
    line_is_cut = threading.Event()

    def write(_folder: NoteFolder, _note: LeaseNote) -> None:
        line_is_cut.wait(PATIENCE)
        raise NoRoom("the disk is full")

    monkeypatch.setattr(NoteFolder, "write", write)
    async with worker_agent_harness(tmp_path) as harness, harness.running():
        await harness.online()
        fleet = harness.fleet
        lease = await fleet.lease(harness.worker_id, "echo", ECHO)
        await fleet.until(lambda: harness.agent._machine.running)
        await fleet.stop_listening()
        await fleet.give_up(harness.worker_id)
        await fleet.listen()
        await harness.online()
        assert list(fleet.hellos[-1].open_lease_ids) == [lease.lease_id]
        # As the daemon does for what a hello names.
        named = commands.NoteTaken(actor="w", worker_id=harness.worker_id, lease_id=lease.lease_id)
        await fleet.ledger.decide(named)
        line_is_cut.set()
        report = await fleet.settled(lease)
        assert report.answer == "lease.fenced" and (report.error or {})["code"] == NoRoom.code
        assert report.statement.outcome is LeaseOutcome.FAILED and not fleet.declined
        assert not fleet.ledger.worker(harness.worker_id).owes
        await eventually(lambda: not harness.agent._machine.open_ids)


async def test_a_worker_that_stops_does_not_wait_for_a_lease_that_could_not_be_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = threading.Event()

    def write(_folder: NoteFolder, _note: LeaseNote) -> None:
        stopped.wait(PATIENCE)
        raise NoRoom("the disk is full")

    monkeypatch.setattr(NoteFolder, "write", write)
    async with worker_agent_harness(tmp_path) as harness, harness.running() as life:
        await harness.online()
        await harness.fleet.lease(harness.worker_id, "echo", ECHO)
        await harness.fleet.until(lambda: harness.agent._machine.running)
        harness.agent.stop()
        await eventually(lambda: "winding_down" in harness.watcher.states)
        stopped.set()
        assert (await asyncio.wait_for(life, limits.WIND_DOWN_SECONDS - 5)).code == ""
        assert len(harness.fleet.declined) == 1


async def test_a_cancelled_and_a_void_lease_are_stopped_and_cleaned_up(tmp_path: Path) -> None:
    async with worker_agent_harness(tmp_path) as harness, harness.running():
        await harness.online()
        fleet = harness.fleet
        first = await fleet.lease(harness.worker_id, "sleep", {"seconds": 600})
        second = await fleet.lease(harness.worker_id, "sleep", {"seconds": 600})
        await fleet.until(lambda: len(harness.scratch_names()) == 2)
        fleet.send(cancel=wire.LeaseCancel(lease_id=first.lease_id, fence=first.fence, reason="asked"))
        report = await fleet.settled(first)
        assert report.statement.outcome is LeaseOutcome.CANCELLED and report.answer == ""
        fleet.void = (second.lease_id,)
        fleet.cut()
        report = await fleet.settled(second)
        assert report.statement.outcome is LeaseOutcome.CANCELLED
        assert harness.scratch_names() == []


async def test_a_deadline_ends_a_call_here(tmp_path: Path) -> None:
    async with worker_agent_harness(tmp_path) as harness, harness.running():
        await harness.online()
        lease = await harness.fleet.lease(harness.worker_id, "sleep", {"seconds": 600}, timeout_ms=300)
        report = await harness.fleet.settled(lease)
        assert report.statement.outcome is LeaseOutcome.TIMED_OUT and report.answer == ""


async def test_a_daemon_that_falls_silent_is_left_and_found_again(tmp_path: Path) -> None:
    async with worker_agent_harness(tmp_path) as harness, harness.running():
        await harness.online()
        fleet = harness.fleet
        fleet.deaf = True
        await eventually(lambda: any("no heartbeat was answered" in said for said in harness.watcher.said))
        fleet.deaf = False
        lease = None
        while lease is None:
            await eventually(lambda: harness.watcher.states[-1:] == ["online"])
            lease = await fleet.lease(harness.worker_id, "echo", ECHO)
        assert (await fleet.settled(lease)).answer == ""


async def test_a_worker_that_is_not_accepted_says_so_and_tries_again(tmp_path: Path) -> None:
    policy = msgspec.structs.replace(POLICY, build_digests=frozenset(("aa" * 32,)))
    async with worker_agent_harness(tmp_path, policy=policy) as harness, harness.running():
        await harness.fleet.until(lambda: harness.fleet.attestation_answers)
        assert harness.fleet.attestation_answers[0] == "worker_attestation.build_digest"
        await eventually(lambda: any("worker_attestation.build_digest" in said for said in harness.watcher.said))
        await harness.fleet.until(lambda: len(harness.fleet.hellos) > 1)


async def test_a_revoked_worker_ends_and_its_leases_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with worker_agent_harness(tmp_path) as harness, harness.running() as life:
        await harness.online()
        await harness.fleet.lease(harness.worker_id, "sleep", {"seconds": 600})
        await harness.fleet.until(lambda: harness.agent._machine.running)
        await harness.fleet.harness.identities.revoke(harness.worker_id, reason="lost", actor="user:operator")
        harness.fleet.cut()
        end = await asyncio.wait_for(life, 60)
        assert end.code == "worker.refused"
        assert harness.scratch_names() == [], "what ran is ended and cleaned up"


async def test_a_certificate_is_renewed_while_a_lease_runs(tmp_path: Path) -> None:
    async with worker_agent_harness(tmp_path) as harness, harness.running():
        await harness.online()
        fleet = harness.fleet
        lease = await fleet.lease(harness.worker_id, "sleep", {"seconds": 1})
        fleet.send(certificate_news=wire.CertificateNews(ca_bundle_pem=b"", renew_now=True))
        await fleet.until(lambda: len(fleet.attestation_answers) == 2)
        assert harness.record().generation == 2
        report = await fleet.settled(lease)
        assert report.answer == "" and report.statement.outcome is LeaseOutcome.SUCCEEDED, "signed with the new key"


@pytest.mark.promise("P-worker-quarantine")
async def test_a_lease_that_never_arrived_is_disclaimed_and_one_that_did_is_settled(tmp_path: Path) -> None:
    async with worker_agent_harness(tmp_path) as harness, harness.running():
        await harness.online()
        fleet = harness.fleet
        had = await fleet.lease(harness.worker_id, "sleep", {"seconds": 600})
        await fleet.until(lambda: harness.agent._machine.running)
        never = await fleet.lease(harness.worker_id, "echo", ECHO, arrives=False)
        await fleet.stop_listening()
        await fleet.give_up(harness.worker_id)
        assert fleet.ledger.worker(harness.worker_id).owes == (had.lease_id, never.lease_id)
        fleet.void = (had.lease_id,)
        await fleet.listen()
        await harness.online()
        assert list(fleet.hellos[-1].open_lease_ids) == [had.lease_id]
        for lease in (had, never):
            fleet.ask_for(lease)
        assert (await fleet.settled(had)).answer == "lease.fenced"
        await fleet.until(lambda: fleet.disclaimed)
        ((said, code),) = fleet.disclaimed
        assert code == "" and said.cleanup.lease_id == never.lease_id and said.boot_id == fleet.hellos[0].boot_id
        worker = fleet.ledger.worker(harness.worker_id)
        assert worker.owes == () and worker.state.value == "available"
        # Should it arrive after all, it is not begun.
        late = {"tool": "echo", "lease_id": never.lease_id, "fence": never.fence, "nonce": never.nonce}
        raw = b'{"text":"hi"}'
        scope = wire.WorkspaceScope(root="/srv/work", allowed_paths=["."], read_only=True)
        digest = hashlib.sha256(raw).hexdigest()
        fleet.send(
            lease=wire.LeaseOffer(scope=scope, arguments_json=raw, argument_digest=digest, timeout_ms=1000, **late)
        )
        await fleet.until(lambda: fleet.declined)
        assert fleet.declined[0].reason.startswith("worker_offer.disclaimed")
        assert never.lease_id not in {report.statement.lease_id for report in fleet.reports}


async def test_a_worker_says_nothing_of_a_lease_that_it_has_told_of_or_that_is_none(tmp_path: Path) -> None:
    async with worker_agent_harness(tmp_path) as harness, harness.running():
        await harness.online()
        fleet = harness.fleet
        lease = await fleet.lease(harness.worker_id, "echo", ECHO)
        await fleet.settled(lease)
        await eventually(lambda: not harness.agent._machine.open_ids)
        fleet.ask_for(lease)
        (harness.folder / "precious").mkdir()
        outside = msgspec.structs.replace(lease, lease_id="../../precious")
        fleet.ask_for(outside)
        await eventually(lambda: any("whose id is malformed" in said for said in harness.watcher.said))
        other = await fleet.lease(harness.worker_id, "echo", ECHO)
        await fleet.settled(other)
        assert fleet.disclaimed == [] and (harness.folder / "precious").exists()


async def test_a_worker_that_is_killed_tells_of_its_lease_in_its_next_life(tmp_path: Path) -> None:
    async with worker_agent_harness(tmp_path) as harness:
        async with harness.running():
            await harness.online()
            lease = await harness.fleet.lease(harness.worker_id, "sleep", {"seconds": 600})
            await harness.fleet.until(lambda: harness.scratch_names() == [lease.lease_id])
            # What a kill leaves: the note and the folder as they are at this moment.
            kept = (harness.home.path("leases") / f"{lease.lease_id}.json").read_bytes()
        harness.home.write_atomic(f"leases/{lease.lease_id}.json", kept)
        (harness.home.path("scratch") / lease.lease_id / "workspace").mkdir(parents=True, exist_ok=True)
        (harness.home.path("scratch") / "stray").mkdir()
        async with harness.running():
            # Another life while a lease is open is a crash: nothing it says counts before a person released it.
            await eventually(lambda: harness.fleet.ledger.worker(harness.worker_id).state.value == "quarantined")
            assert harness.scratch_names() == [] and not harness.fleet.reports
            await harness.fleet.ledger.decide(
                commands.ReleaseWorker(actor="user:operator", worker_id=harness.worker_id)
            )
            report = await harness.fleet.settled(lease)
            assert report.statement.error_code == "worker.interrupted" and report.answer == "lease.fenced"
            assert report.statement.cleanup.entries_left == 0
            await eventually(lambda: not harness.agent._machine.open_ids)
            assert not harness.fleet.ledger.worker(harness.worker_id).owes


async def test_a_worker_that_is_stopped_lets_its_leases_end_and_tells_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WIND_DOWN_SECONDS", 1.0)
    async with worker_agent_harness(tmp_path) as harness, harness.running() as life:
        await harness.online()
        short = await harness.fleet.lease(harness.worker_id, "sleep", {"seconds": 0.3})
        long = await harness.fleet.lease(harness.worker_id, "sleep", {"seconds": 600})
        await harness.fleet.until(lambda: harness.agent._machine.running == 2)
        harness.agent.stop()
        await harness.fleet.until(lambda: harness.fleet.beats[-1].slots == 0)
        end = await asyncio.wait_for(life, 60)
        assert end.code == ""
        assert (await harness.fleet.settled(short)).statement.outcome is LeaseOutcome.SUCCEEDED
        assert (await harness.fleet.settled(long)).statement.outcome is LeaseOutcome.CANCELLED
