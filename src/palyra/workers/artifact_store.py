"""Files of leases on the daemon's disk, each under the digest of its content, once, and only for as long as needed.

Whatever comes in is counted and digested while it is written, and gets its name only when both are what was said.
"""

import hashlib
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from palyra.errors import InvalidInput, LimitExceeded, Tampered, Unavailable
from palyra.workers.service_limits import CHUNK_BYTES, KEPT_ARTIFACT_SECONDS, MAX_STORED_BYTES

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_PART: Final = "part-"


class ArtifactUnknown(InvalidInput):
    code = "worker_artifact.unknown"
    hint = "the daemon does not have it (any more): upload it for the lease it belongs to"
    http_status = 404


class ArtifactDiffers(Tampered):
    code = "worker_artifact.digest_mismatch"
    hint = "what was sent is not what its digest and size say"


class ArtifactsFull(LimitExceeded):
    code = "worker_artifact.store_full"
    hint = "wait until leases have ended, or give calls fewer files"


class ArtifactDiskFails(Unavailable):
    code = "worker_artifact.disk"
    hint = "look at the disk that the state directory is on"


class ArtifactStore:
    """Blocking: use it on a thread. One process at a time cleans up; several may read and write."""

    def __init__(self, root: Path, *, max_bytes: int = MAX_STORED_BYTES) -> None:
        self._root = root
        self._max_bytes = max_bytes
        # Counted when it is first asked for and with every round of pruning, and kept up in between: a folder of ten
        # thousand files is not looked through for each one that comes in.
        self._counted: int | None = None
        self._lock = threading.Lock()

    def has(self, digest: str) -> bool:
        path = self._path(digest)
        try:
            # Asked for again: it stays for another while.
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
        """From this machine, where it is not there yet."""
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
        """At most a chunk, from an offset on; empty at its end."""
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
        """Removes what no open lease needs and nobody asked for lately; how many files that were."""
        oldest = time.time() - KEPT_ARTIFACT_SECONDS
        gone = 0
        for path, status in self._files():
            if path.name not in needed and status.st_mtime < oldest:
                path.unlink(missing_ok=True)
                gone += 1
        with self._lock:
            # What another process keeps here counts too, from now on.
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
            raise ArtifactUnknown(f"{digest[:80]!r} is no SHA-256 in hex")
        return self._root / digest


class Incoming:
    """One file while it comes in; it is dropped unless it was finished."""

    def __init__(
        self, part: Path, descriptor: int, target: Path, digest: str, size: int, give_back: Callable[[int], None]
    ) -> None:
        """``give_back``: so many bytes that were reserved are not taken."""
        self._give_back = give_back
        self._kept = False
        self._part = part
        self._descriptor = descriptor
        self._target = target
        self._digest = digest
        self._size = size
        self._sum = hashlib.sha256()
        self.received = 0

    def write(self, data: bytes) -> None:
        self.received += len(data)
        if self.received > self._size:
            raise ArtifactDiffers(f"more than the {self._size} bytes that were announced", digest=self._digest)
        self._sum.update(data)
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            raise ArtifactDiskFails(f"a file of a lease cannot be written: {error.strerror}") from error

    def finish(self) -> None:
        if self.received != self._size or self._sum.hexdigest() != self._digest:
            raise ArtifactDiffers("the bytes are not those of the digest and size that were said", digest=self._digest)
        there = self._target.exists()
        os.rename(self._part, self._target)
        self._kept = not there

    def close(self) -> None:
        os.close(self._descriptor)
        self._part.unlink(missing_ok=True)
        if not self._kept:
            self._give_back(self._size)
