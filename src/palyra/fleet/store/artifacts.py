"""The files of leases on the daemon's disk, each stored once under its digest and deleted when no lease needs it.

An incoming file is measured and digested while it is written. It gets its name only if size and digest are correct.
"""

import asyncio
import hashlib
import os
import re
import secrets
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from palyra.errors import Denied, InvalidInput, LimitExceeded, Tampered, Unavailable
from palyra.fleet.domain.lease import LeaseEnded, StaleFence, WorkerLease, WrongWorker
from palyra.fleet.domain.workspace_scope import ArtifactRef, ArtifactsTooLarge
from palyra.fleet.limits import (
    CHUNK_BYTES,
    KEPT_ARTIFACT_SECONDS,
    MAX_ARTIFACT_BYTES,
    MAX_ARTIFACTS_BYTES,
    MAX_STORED_BYTES,
)

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_PART: Final = "part-"


class ArtifactUnknown(InvalidInput):
    code = "worker_artifact.unknown"
    hint = "the daemon does not have the file, or no longer: upload it for its lease"
    http_status = 404


class ArtifactDiffers(Tampered):
    code = "worker_artifact.digest_mismatch"
    hint = "the bytes do not have the announced digest and size"


class ArtifactsFull(LimitExceeded):
    code = "worker_artifact.store_full"
    hint = "wait until leases have ended, or give calls fewer files"


class ArtifactDiskFails(Unavailable):
    code = "worker_artifact.disk"
    hint = "look at the disk that the state directory is on"


class ArtifactStore:
    """Blocking. One process at a time cleans up; several may read and write."""

    def __init__(self, root: Path, *, max_bytes: int = MAX_STORED_BYTES) -> None:
        self._root = root
        self._max_bytes = max_bytes
        # Measured on first use and at every pruning, and updated in between: a folder of ten thousand files is not
        # listed for each new one.
        self._counted: int | None = None
        self._lock = threading.Lock()

    def has(self, digest: str) -> bool:
        path = self._path(digest)
        try:
            # Pruning counts from the last use.
            os.utime(path)
        except FileNotFoundError:
            return False
        return True

    def missing(self, digests: Collection[str]) -> list[str]:
        return sorted({digest for digest in digests if not self.has(digest)})

    def receive(self, digest: str, size: int) -> "Incoming":
        target = self._path(digest)
        if size < 0 or not self._reserve(size):
            raise ArtifactsFull(f"the files of leases would take more than {self._max_bytes} bytes")
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = self._root / f"{_PART}{secrets.token_hex(16)}"
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._give_back(size)
            raise ArtifactDiskFails(f"a file of a lease cannot be kept: {error.strerror}") from error
        return Incoming(part, descriptor, target, digest, size, self._give_back)

    def add(self, content: Iterator[bytes], size: int, digest: str) -> None:
        """Add a file of this machine if it is missing."""
        if self.has(digest):
            return
        incoming = self.receive(digest, size)
        try:
            for part in content:
                incoming.write(part)
            incoming.finish()
        finally:
            incoming.close()

    def read(self, digest: str, offset: int = 0) -> bytes:
        """Read at most a chunk from the offset. The end gives no bytes."""
        with self._opened(digest) as file:
            file.seek(offset)
            return file.read(CHUNK_BYTES)

    def content(self, digest: str) -> bytes:
        with self._opened(digest) as file:
            return file.read()

    def stored_bytes(self) -> int:
        return sum(status.st_size for _, status in self._files())

    def _reserve(self, size: int) -> bool:
        with self._lock:
            if self._counted is None:
                self._counted = self.stored_bytes()
            if self._counted + size > self._max_bytes:
                return False
            self._counted += size
            return True

    def _give_back(self, size: int) -> None:
        with self._lock:
            if self._counted is not None:
                self._counted -= size

    def prune(self, needed: Collection[str]) -> int:
        """Delete the files that no open lease needs and nothing used lately. Return their number."""
        oldest = time.time() - KEPT_ARTIFACT_SECONDS
        gone = 0
        for path, status in self._files():
            if path.name not in needed and status.st_mtime < oldest:
                path.unlink(missing_ok=True)
                gone += 1
        with self._lock:
            # Includes the files of other processes.
            self._counted = self.stored_bytes()
        return gone

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        if not self._root.is_dir():
            return
        for path in self._root.iterdir():
            try:
                yield path, path.stat()
            except FileNotFoundError:
                continue

    def _opened(self, digest: str) -> BinaryIO:
        try:
            return self._path(digest).open("rb")
        except FileNotFoundError:
            raise ArtifactUnknown(f"there is no file with the digest {digest}") from None
        except OSError as error:
            raise ArtifactDiskFails(f"a file of a lease cannot be read: {error.strerror}") from error

    def _path(self, digest: str) -> Path:
        if not _SHA256.fullmatch(digest):
            raise ArtifactUnknown(f"{digest[:80]!r} is not a SHA-256 in hex")
        return self._root / digest


@dataclass(eq=False)
class Incoming:
    """A file that is being received, deleted unless ``finish`` was called. ``give_back`` takes unused bytes."""

    part: Path
    descriptor: int
    target: Path
    digest: str
    size: int
    give_back: Callable[[int], None]
    received: int = 0

    def __post_init__(self) -> None:
        self._sum = hashlib.sha256()
        self._kept = False

    def write(self, data: bytes) -> None:
        self.received += len(data)
        if self.received > self.size:
            raise ArtifactDiffers(f"more than the {self.size} bytes that were announced", digest=self.digest)
        self._sum.update(data)
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self.descriptor, view) :]
        except OSError as error:
            raise ArtifactDiskFails(f"a file of a lease cannot be written: {error.strerror}") from error

    def finish(self) -> None:
        if self.received != self.size or self._sum.hexdigest() != self.digest:
            raise ArtifactDiffers("the bytes do not have the announced digest and size", digest=self.digest)
        there = self.target.exists()
        os.rename(self.part, self.target)
        self._kept = not there

    def close(self) -> None:
        os.close(self.descriptor)
        self.part.unlink(missing_ok=True)
        if not self._kept:
            self.give_back(self.size)


class NotAnInput(Denied):
    code = "worker_artifact.not_an_input"
    hint = "a worker gets the files that its lease names and no others"


class GapInUpload(InvalidInput):
    code = "worker_artifact.gap"
    hint = "send the parts of a file in order and without gaps"


class ReadOnlyLease(Denied):
    code = "worker_artifact.read_only"
    hint = "a lease that may only read brings no files back"


@dataclass(eq=False)
class LeaseArtifacts:
    """The files of open leases, for the worker of the lease under its fencing number.

    ``lease_of`` reads a lease from the ledger. ``on_reached`` gets each lease whose worker asks for its files, which
    shows that the worker has the lease.
    """

    store: ArtifactStore
    lease_of: Callable[[str], WorkerLease]
    on_reached: Callable[[str, WorkerLease], None]

    def __post_init__(self) -> None:
        # Bytes uploaded by lease, so that no lease fills the disk.
        self._uploaded: dict[str, int] = {}

    def _own(self, worker_id: str, lease_id: str, fence: int) -> WorkerLease:
        lease = self.lease_of(lease_id[:64])
        if lease.worker_id != worker_id:
            raise WrongWorker("the lease is another worker's", lease_id=lease.lease_id)
        if lease.fence != fence:
            raise StaleFence("that is not the fencing number of the lease", lease_id=lease.lease_id)
        self.on_reached(worker_id, lease)
        if not lease.is_open:
            raise LeaseEnded(f"the lease is {lease.state.value}", lease_id=lease.lease_id)
        return lease

    async def missing(self, worker_id: str, lease_id: str, fence: int, digests: list[str]) -> list[str]:
        self._own(worker_id, lease_id, fence)
        return await asyncio.to_thread(self.store.missing, digests)

    @asynccontextmanager
    async def receiving(
        self, worker_id: str, lease_id: str, fence: int, digest: str, size: int
    ) -> AsyncIterator[Callable[[int, bytes], Awaitable[None]]]:
        """Yield the function that writes a part at its offset. The file is stored after a block without an error."""
        lease = self._own(worker_id, lease_id, fence)
        if lease.scope.read_only:
            raise ReadOnlyLease("the lease may only read", lease_id=lease_id)
        uploaded = self._uploaded.get(lease_id, 0) + size
        if size > MAX_ARTIFACT_BYTES or uploaded > MAX_ARTIFACTS_BYTES:
            raise ArtifactsTooLarge(f"a lease brings at most {MAX_ARTIFACTS_BYTES} bytes back", lease_id=lease_id)
        self._uploaded[lease_id] = uploaded
        incoming = await asyncio.to_thread(self.store.receive, digest, size)

        async def write(offset: int, data: bytes) -> None:
            if offset != incoming.received:
                raise GapInUpload(f"part at {offset} where {incoming.received} was next")
            await asyncio.to_thread(incoming.write, data)

        try:
            yield write
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
        """Raise unless every file that a settlement names was uploaded."""
        if artifacts:
            missing = await asyncio.to_thread(self.store.missing, [one.digest_sha256 for one in artifacts])
            if missing:
                raise ArtifactUnknown(f"{len(missing)} files of the result were not uploaded", lease_id=lease.lease_id)

    async def prune(self, open_leases: list[WorkerLease]) -> int:
        needed = frozenset(one.digest_sha256 for lease in open_leases for one in lease.inputs)
        still = {lease.lease_id for lease in open_leases}
        self._uploaded = {lease_id: size for lease_id, size in self._uploaded.items() if lease_id in still}
        return await asyncio.to_thread(self.store.prune, needed)
