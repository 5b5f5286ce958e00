"""Files of leases, in and out: only for an open lease, only for its worker, only under its fencing number."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from palyra.errors import Denied, InvalidInput
from palyra.workers.artifact_store import ArtifactStore, ArtifactUnknown, Incoming
from palyra.workers.lease import LeaseEnded, StaleFence, WorkerLease, WrongWorker
from palyra.workers.limits import MAX_ARTIFACT_BYTES, MAX_ARTIFACTS_BYTES
from palyra.workers.workspace_scope import ArtifactRef, ArtifactsTooLarge


class NotAnInput(Denied):
    code = "worker_artifact.not_an_input"
    hint = "a worker gets the files that its lease names and no others"


class GapInUpload(InvalidInput):
    code = "worker_artifact.gap"
    hint = "send the parts of a file in order and without gaps"


class ReadOnlyLease(Denied):
    code = "worker_artifact.read_only"
    hint = "a lease that may only read brings no files back"


class Receiving:
    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming

    async def write(self, offset: int, data: bytes) -> None:
        if offset != self._incoming.received:
            raise GapInUpload(f"part at {offset} where {self._incoming.received} was next")
        await asyncio.to_thread(self._incoming.write, data)


class ArtifactDesk:
    """``lease_of`` is the lease as the ledger has it. ``on_reached`` hears of each worker that reaches for its lease's
    files, and so has the lease."""

    def __init__(
        self,
        store: ArtifactStore,
        lease_of: Callable[[str], WorkerLease],
        on_reached: Callable[[str, WorkerLease], None],
    ) -> None:
        self.store = store
        self._lease_of = lease_of
        self._on_reached = on_reached
        # Bytes that leases have brought, so that one cannot fill the disk.
        self._brought: dict[str, int] = {}

    def _own(self, worker_id: str, lease_id: str, fence: int) -> WorkerLease:
        lease = self._lease_of(lease_id[:64])
        if lease.worker_id != worker_id:
            raise WrongWorker("the lease is another worker's", lease_id=lease.lease_id)
        if lease.fence != fence:
            raise StaleFence("that is not the fencing number of the lease", lease_id=lease.lease_id)
        self._on_reached(worker_id, lease)
        if not lease.is_open:
            raise LeaseEnded(f"the lease is {lease.state.value}", lease_id=lease.lease_id)
        return lease

    async def missing(self, worker_id: str, lease_id: str, fence: int, digests: list[str]) -> list[str]:
        self._own(worker_id, lease_id, fence)
        return await asyncio.to_thread(self.store.missing, digests)

    @asynccontextmanager
    async def receiving(
        self, worker_id: str, lease_id: str, fence: int, digest: str, size: int
    ) -> AsyncIterator[Receiving]:
        """The file is there when this ends without an error."""
        lease = self._own(worker_id, lease_id, fence)
        if lease.scope.read_only:
            raise ReadOnlyLease("the lease may only read", lease_id=lease_id)
        brought = self._brought.get(lease_id, 0) + size
        if size > MAX_ARTIFACT_BYTES or brought > MAX_ARTIFACTS_BYTES:
            raise ArtifactsTooLarge(f"a lease brings at most {MAX_ARTIFACTS_BYTES} bytes back", lease_id=lease_id)
        self._brought[lease_id] = brought
        incoming = await asyncio.to_thread(self.store.receive, digest, size)
        try:
            yield Receiving(incoming)
            await asyncio.to_thread(incoming.finish)
        finally:
            await asyncio.shield(asyncio.to_thread(incoming.close))

    async def sending(
        self, worker_id: str, lease_id: str, fence: int, digest: str, offset: int
    ) -> AsyncIterator[tuple[int, bytes]]:
        lease = self._own(worker_id, lease_id, fence)
        if digest not in {one.digest_sha256 for one in lease.inputs}:
            raise NotAnInput("the file is not an input of the lease", lease_id=lease_id)
        while data := await asyncio.to_thread(self.store.read, digest, offset):
            yield offset, data
            offset += len(data)

    async def require_all(self, lease: WorkerLease, artifacts: tuple[ArtifactRef, ...]) -> None:
        """A settlement counts only with every file that it names."""
        if artifacts:
            missing = await asyncio.to_thread(self.store.missing, [one.digest_sha256 for one in artifacts])
            if missing:
                raise ArtifactUnknown(f"{len(missing)} files of the result were not uploaded", lease_id=lease.lease_id)

    async def prune(self, open_leases: list[WorkerLease]) -> int:
        needed = frozenset(one.digest_sha256 for lease in open_leases for one in lease.inputs)
        still = {lease.lease_id for lease in open_leases}
        self._brought = {lease_id: size for lease_id, size in self._brought.items() if lease_id in still}
        return await asyncio.to_thread(self.store.prune, needed)
