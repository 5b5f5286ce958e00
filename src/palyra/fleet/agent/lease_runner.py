"""Runs one lease from its inputs to the proof of its cleanup. Every failure on the way is an end that is reported."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from palyra.clock import MS_PER_SECOND, Clock
from palyra.errors import CallCancelled, InternalError, PalyraError
from palyra.fleet import limits
from palyra.fleet.agent.lease import ArtifactMissing, ArtifactsUnsent, LeaseEnd, LeaseNote, LeaseOffer, OwedLease
from palyra.fleet.agent.link import LinkLost, WorkerLink
from palyra.fleet.agent.ports import CallEnd, LeasedCalls, OutputSink
from palyra.fleet.agent.scratch import Gathered, Residue, Scratch, ScratchFolder, look
from palyra.fleet.domain.lease import LeaseOutcome
from palyra.fleet.domain.settlement import CleanupProof
from palyra.fleet.domain.workspace_scope import ArtifactRef

log = logging.getLogger("palyra.worker")
# Pauses between checks in seconds: the kernel takes a moment to remove a killed process.
_LOOK_AGAIN: Final = (0.02, 0.1, 0.5)


@dataclass(eq=False, kw_only=True)
class LeaseRunner:
    """``connected`` waits for an attested connection. ``proof_of`` gives the receipt's first line."""

    scratches: ScratchFolder
    calls: LeasedCalls
    clock: Clock
    connected: Callable[[], Awaitable[WorkerLink]]
    proof_of: Callable[[LeaseOffer], dict[str, Any]]
    _working: dict[str, asyncio.Task[tuple[CallEnd, Gathered]]] = field(default_factory=dict, init=False)
    # Leases whose scratch folder is being made, and those of them that were stopped meanwhile.
    _beginning: set[str] = field(default_factory=set, init=False)
    _stopped: set[str] = field(default_factory=set, init=False)

    def stop(self, lease_id: str) -> None:
        """End the call, or prevent its start. Its cleanup and its end follow."""
        if (task := self._working.get(lease_id)) is not None:
            task.cancel()
        elif lease_id in self._beginning:
            self._stopped.add(lease_id)

    async def run(self, offer: LeaseOffer, *, grace_ms: int, sink: OutputSink, stopped: bool = False) -> LeaseEnd:
        """Run a lease. Never raises. A lease that is ``stopped`` already is not begun."""
        started_ms, arrived = self.clock.now_ms(), self.clock.monotonic()
        deadline = arrived + min(offer.timeout_ms, limits.MAX_RUN_MS) / MS_PER_SECOND
        scratch: Scratch | None = None
        end, gathered = _failed(InternalError("the lease ended without a result")), Gathered()
        try:
            if not stopped:
                scratch = await self._begin(offer.lease_id)
            if scratch is None:
                raise CallCancelled("the lease was cancelled before it began")
            work = asyncio.create_task(
                self._perform(offer, scratch, deadline, grace_ms / MS_PER_SECOND, sink), name=f"work {offer.lease_id}"
            )
            self._working[offer.lease_id] = work
            try:
                await asyncio.wait([work])
            finally:
                # If this task is cancelled, the call must not outlive it.
                work.cancel()
                await asyncio.wait([work])
            end, gathered = (_cancelled(), Gathered()) if work.cancelled() else work.result()
        except CallCancelled:
            end = _cancelled()
        except PalyraError as error:
            end = _failed(error)
        except Exception:
            log.exception("lease %s broke", offer.lease_id)
            end = _failed(InternalError("the worker broke inside Palyra", lease_id=offer.lease_id))
        finally:
            self._working.pop(offer.lease_id, None)
        ended_ms = max(started_ms, self.clock.now_ms())
        proof = await self._clean_up(offer.lease_id, offer.fence, offer.nonce, ended_ms, scratch)
        return LeaseEnd(
            outcome=end.outcome,
            result=end.result,
            error=end.error,
            receipt=[self.proof_of(offer), *end.receipt, *_artifact_lines(offer, gathered)],
            executor=end.executor,
            artifacts=gathered.artifacts,
            started_ms=started_ms,
            ended_ms=ended_ms,
            cleanup=proof,
        )

    async def _begin(self, lease_id: str) -> Scratch | None:
        """Make the scratch folder. Return None if the lease was stopped meanwhile."""
        self._beginning.add(lease_id)
        try:
            scratch = await asyncio.to_thread(self.scratches.make, lease_id)
            return None if lease_id in self._stopped else scratch
        finally:
            self._beginning.discard(lease_id)
            self._stopped.discard(lease_id)

    async def end_unfinished(self, note: LeaseNote, error: PalyraError) -> LeaseNote:
        """End a lease that was not begun, or that an earlier life of this worker did not finish."""
        ended_ms = max(note.begun_ms, self.clock.now_ms())
        proof = await self._clean_up(note.lease_id, note.fence, note.nonce, ended_ms, None)
        end = LeaseEnd(
            outcome=LeaseOutcome.FAILED,
            error=error.as_dict(),
            started_ms=note.begun_ms,
            ended_ms=ended_ms,
            cleanup=proof,
        )
        return note.ended(end)

    async def prove_absent(self, owed: OwedLease) -> CleanupProof:
        """Make the cleanup proof of a lease that was never begun here, by the same check as after a call."""
        return await self._clean_up(owed.lease_id, owed.fence, owed.nonce, self.clock.now_ms(), None)

    async def _perform(
        self, offer: LeaseOffer, scratch: Scratch, deadline: float, grace: float, sink: OutputSink
    ) -> tuple[CallEnd, Gathered]:
        await asyncio.to_thread(scratch.require_room, offer.inputs)
        await asyncio.to_thread(scratch.make_folders, offer.scope)
        try:
            async with asyncio.timeout_at(self._loop_time(deadline)):
                for artifact in offer.inputs:
                    await self._retry(partial(self._fetch, offer, scratch, artifact), offer.lease_id)
        except LinkLost as lost:
            raise ArtifactMissing(f"the daemon did not give an input: {lost.why}") from None
        except TimeoutError:
            raise ArtifactMissing("an input did not come before the deadline") from None
        left_ms = max(1, round((deadline - self.clock.monotonic()) * MS_PER_SECOND))
        end = await self.calls.perform(offer, scratch, left_ms, sink)
        if end.outcome is not LeaseOutcome.SUCCEEDED:
            return end, Gathered()
        gathered = await asyncio.to_thread(scratch.gather, offer.inputs, offer.scope, self.calls.is_protected)
        if gathered.artifacts:
            # Half of the grace is for the cleanup and its report.
            until = max(deadline, self.clock.monotonic()) + grace / 2
            try:
                async with asyncio.timeout_at(self._loop_time(until)):
                    await self._retry(partial(self._deliver, offer, scratch, gathered.artifacts), offer.lease_id)
            except LinkLost as lost:
                raise ArtifactsUnsent(f"the daemon did not take a file: {lost.why}") from None
            except TimeoutError:
                raise ArtifactsUnsent("the daemon could not be reached before the deadline") from None
        return end, gathered

    async def _retry(self, transfer: Callable[[WorkerLink], Awaitable[None]], lease_id: str) -> None:
        """Transfer files, on another connection after each loss. Raise ``LinkLost`` if the daemon refuses."""
        while True:
            try:
                return await transfer(await self.connected())
            except LinkLost as lost:
                if lost.final:
                    raise
                log.info("files of lease %s were not transferred: %s", lease_id, lost.why)
                await asyncio.sleep(_LOOK_AGAIN[-1])

    async def _fetch(self, offer: LeaseOffer, scratch: Scratch, artifact: ArtifactRef, link: WorkerLink) -> None:
        with scratch.lay_out(artifact) as writer:
            if artifact.size:
                await link.download(offer.lease_id, offer.fence, artifact, writer.write)

    async def _deliver(
        self, offer: LeaseOffer, scratch: Scratch, artifacts: tuple[ArtifactRef, ...], link: WorkerLink
    ) -> None:
        by_digest = {artifact.digest_sha256: artifact for artifact in artifacts}
        missing = await link.find_missing(offer.lease_id, offer.fence, sorted(by_digest))
        for digest in sorted(missing & by_digest.keys()):
            with scratch.reading(by_digest[digest]) as descriptor:
                await link.upload(offer.lease_id, offer.fence, by_digest[digest], descriptor)

    async def _clean_up(
        self, lease_id: str, fence: int, nonce: str, ended_ms: int, scratch: Scratch | None
    ) -> CleanupProof:
        """Remove everything and count what is left. The proof states the count."""

        def remove_and_look() -> Residue:
            self.scratches.remove(lease_id)
            return look(self.scratches.root / lease_id, lease_id)

        residue = await asyncio.to_thread(remove_and_look)
        for pause in _LOOK_AGAIN:
            if residue.clean:
                break
            await asyncio.sleep(pause)
            residue = await asyncio.to_thread(remove_and_look)
        return CleanupProof(
            lease_id=lease_id,
            fence=fence,
            nonce=nonce,
            workspace="" if scratch is None else scratch.identity,
            ended_ms=ended_ms,
            checked_ms=max(ended_ms, self.clock.now_ms()),
            entries_left=residue.entries,
            processes_left=residue.processes,
            mounts_left=residue.mounts,
        )

    def _loop_time(self, moment: float) -> float:
        """Convert a moment of this worker's clock to the event loop's clock."""
        return asyncio.get_running_loop().time() + (moment - self.clock.monotonic())


def _failed(error: PalyraError) -> CallEnd:
    return CallEnd(outcome=LeaseOutcome.FAILED, error=error.as_dict())


def _cancelled() -> CallEnd:
    return CallEnd(outcome=LeaseOutcome.CANCELLED, error=CallCancelled("the lease was cancelled").as_dict())


def _artifact_lines(offer: LeaseOffer, gathered: Gathered) -> list[dict[str, Any]]:
    if offer.scope.read_only:
        return []
    facts = msgspec.structs.asdict(gathered)
    left_out = [f"{count} {name}" for name in ("outside_scope", "not_files", "protected") if (count := facts[name])]
    got = f"{len(gathered.artifacts)} sent" + (f"; left out: {', '.join(left_out)}" if left_out else "")
    return [{"layer": "artifacts", "asked": "changed files within the scope", "got": got}]
