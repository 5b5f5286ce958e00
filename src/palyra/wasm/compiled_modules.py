"""Compile modules in a process of their own, and keep the results in memory and in a bounded folder.

Several processes share the folder. A writer holds a shared lock on it, and the process that makes room an exclusive
one, so that no new file is removed. A file's time says when it was last loaded. The kernel releases the lock of a
process that dies.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import hmac
import mmap
import os
import re
import stat
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

import msgspec

from palyra.wasm.domain.frames import Compile, Compiled
from palyra.wasm.domain.limits import MAX_COMPILED_BYTES, PoolSettings
from palyra.wasm.domain.module_facts import ModuleFacts
from palyra.wasm.domain.outcome import CompileFailed, LinkFailed, render_text
from palyra.wasm.process.fork_server import COMPILER, WorkerSource, carry_out
from palyra.wasm.process.pool import LinkBroken, WorkerLink

_DIR_MODE: Final = 0o700
_COMPILED: Final = re.compile(r"[0-9a-f]{64}\.cwasm")
_HALF_WRITTEN: Final = re.compile(r"[0-9a-f]{64}\.[0-9]+\.[0-9a-f]{16}")
# Making room takes milliseconds: a process that holds the lock longer hangs.
_HELD_SECONDS: Final = 5.0
_LOOK_AGAIN_SECONDS: Final = 0.005
# What was written or loaded so recently may be on its way into a worker, also of another process.
REST_SECONDS: Final = 60.0


class Removed(msgspec.Struct, frozen=True):
    """The files that were removed to make room. Where the folder was ``busy``, a later attempt is worthwhile."""

    files: int = 0
    size: int = 0
    busy: bool = False


class _Entry(msgspec.Struct, frozen=True):
    name: str
    size: int
    used: float


class CacheFolder:
    """Blocking throughout. The folder is made at the first write."""

    def __init__(self, directory: Path, *, most_bytes: int, now: Callable[[], float] = time.time) -> None:
        self.directory = directory
        self._most = most_bytes
        self._now = now

    @contextlib.contextmanager
    def lock_for_writing(self) -> Iterator[None]:
        """Keep other processes from making room meanwhile. Raises ``OSError`` if the lock is not free in time."""
        self.directory.mkdir(mode=_DIR_MODE, parents=True, exist_ok=True)
        folder = self._open_folder()
        try:
            _lock_folder(folder, fcntl.LOCK_SH, _HELD_SECONDS)
            yield
        finally:
            os.close(folder)

    def make_room(self, in_use: Collection[str] = ()) -> Removed:
        """Remove the files that were not used for longest until the rest is within the bound.

        Files that a killed process left half written go too. ``in_use`` counts as used now. Nothing is removed while
        another process writes: that process makes room afterwards, unless it dies or hangs before.
        """
        try:
            folder = self._open_folder()
        except FileNotFoundError:
            return Removed()
        try:
            _lock_folder(folder, fcntl.LOCK_EX, 0)
            for name in in_use:
                # Some files were never written, or are removed already.
                with contextlib.suppress(OSError):
                    os.utime(name, dir_fd=folder, follow_symlinks=False)
            return self._remove(folder)
        except BlockingIOError:
            return Removed(busy=True)
        finally:
            os.close(folder)

    def _remove(self, folder: int) -> Removed:
        entries = _entries(folder)
        left = sum(entry.size for entry in entries)
        files = size = 0
        now = self._now()
        for entry in sorted(entries, key=lambda each: (_COMPILED.fullmatch(each.name) is not None, each.used)):
            if 0 <= now - entry.used < REST_SECONDS or (_COMPILED.fullmatch(entry.name) and left <= self._most):
                continue
            # What cannot be deleted is no file of ours.
            with contextlib.suppress(OSError):
                os.unlink(entry.name, dir_fd=folder)
                left -= entry.size
                files += 1
                size += entry.size
        return Removed(files, size)

    def _open_folder(self) -> int:
        # A link to another disk is its owner's to make: the folder around it is the owner's alone.
        return os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _entries(folder: int) -> list[_Entry]:
    """List our files. Files of other names are neither counted nor deleted."""
    found = []
    for name in os.listdir(folder):
        if not _COMPILED.fullmatch(name) and not _HALF_WRITTEN.fullmatch(name):
            continue
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                found.append(_Entry(name, status.st_size, status.st_mtime))
    return found


def _lock_folder(folder: int, how: int, patience: float) -> None:
    until = time.monotonic() + patience
    while True:
        try:
            return fcntl.flock(folder, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
        time.sleep(_LOOK_AGAIN_SECONDS)


_MAGIC: Final = b"palyra-wasm-1\n\0\0"
_TAG_BYTES: Final = 32
_LENGTHS: Final = struct.Struct("<IQ")
_HEAD_BYTES: Final = len(_MAGIC) + _TAG_BYTES + _LENGTHS.size
_MAX_FACTS_BYTES: Final = 16 * 1024 * 1024
_DOMAIN: Final = b"palyra wasm compiled module v1\0"
_CHUNK_BYTES: Final = 1024 * 1024
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_ENCODER: Final = msgspec.msgpack.Encoder()
_FACTS: Final = msgspec.msgpack.Decoder(ModuleFacts)


class _Refused(Exception):
    """A file that is not what its name says."""


class Stored:
    """One compiled module in a sealed memory file."""

    def __init__(self, descriptor: int, size: int, facts: ModuleFacts) -> None:
        self.descriptor = descriptor
        self.size = size
        self.facts = facts

    def close(self) -> None:
        os.close(self.descriptor)


def memory_file(size: int) -> int:
    descriptor = os.memfd_create("palyra-wasm", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    return descriptor


def fill_memory_file(content: bytes) -> int:
    descriptor = memory_file(0)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    return descriptor


class CompiledCache:
    """Compiled modules in memory and on disk.

    Compiled code is trusted when it is loaded, so a file is only used under a tag that this installation's key made
    for exactly this module and this engine. A file is copied into a memory file first and sealed: the bytes that were
    checked are the bytes that are loaded. ``on_refused`` receives the name of each file whose content does not fit
    its name, and the reason.
    """

    def __init__(
        self, folder: CacheFolder, key: bytes, *, memory_bytes: int, on_refused: Callable[[str, str], None]
    ) -> None:
        self._folder = folder
        self._key = key
        self._room = memory_bytes
        self._on_refused = on_refused
        self._kept: OrderedDict[tuple[bytes, str], Stored] = OrderedDict()
        self._used = 0

    def in_memory(self, digest: bytes, engine: str) -> Stored | None:
        stored = self._kept.get((digest, engine))
        if stored is not None:
            self._kept.move_to_end((digest, engine))
        return stored

    def keep(self, digest: bytes, engine: str, stored: Stored) -> None:
        """Keep ``stored``, and close what was not used for longest to make room for it."""
        old = self._kept.pop((digest, engine), None)
        if old is not None:
            self._used -= old.size
            old.close()
        self._kept[(digest, engine)] = stored
        self._used += stored.size
        while self._used > self._room and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._used -= oldest.size
            oldest.close()

    def close(self) -> None:
        while self._kept:
            _, stored = self._kept.popitem()
            stored.close()
        self._used = 0

    def path(self, digest: bytes, engine: str) -> Path:
        name = hashlib.sha256(digest + engine.encode()).hexdigest()
        return self._folder.directory / f"{name}.cwasm"

    def _tag(self, digest: bytes, engine: str, facts: bytes, compiled: mmap.mmap | bytes) -> bytes:
        mac = hmac.new(self._key, _DOMAIN, hashlib.sha256)
        for part in (digest, engine.encode(), facts):
            mac.update(len(part).to_bytes(8, "little") + part)
        mac.update(compiled)
        return mac.digest()

    def write(self, digest: bytes, engine: str, stored: Stored) -> None:
        """Write a module to disk, blocking. A failure is ignored: the module is compiled again next time."""
        facts = _ENCODER.encode(stored.facts)
        target = self.path(digest, engine)
        scratch = target.with_suffix(f".{os.getpid()}.{os.urandom(8).hex()}")
        with mmap.mmap(stored.descriptor, stored.size, mmap.MAP_SHARED, mmap.PROT_READ) as compiled:
            head = _MAGIC + self._tag(digest, engine, facts, compiled) + _LENGTHS.pack(len(facts), stored.size) + facts
            try:
                with self._folder.lock_for_writing():
                    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                    with open(descriptor, "wb") as file:
                        file.write(head)
                        file.write(compiled)
                    os.replace(scratch, target)
            except OSError:
                with contextlib.suppress(OSError):
                    scratch.unlink()

    def make_room(self, kept: Collection[Path]) -> Removed:
        """Make room, blocking. ``kept`` are the files of modules in memory, which run without being loaded again."""
        return self._folder.make_room([path.name for path in kept])

    def kept_files(self) -> list[Path]:
        return [self.path(digest, engine) for digest, engine in self._kept]

    def read(self, digest: bytes, engine: str) -> Stored | None:
        """Load a module from disk, blocking. A file that cannot be trusted is removed."""
        path = self.path(digest, engine)
        try:
            return self._read_checked(path, digest, engine)
        except _Refused as refused:
            self._on_refused(path.name, str(refused))
            with contextlib.suppress(OSError):
                path.unlink()
            return None

    def _read_checked(self, path: Path, digest: bytes, engine: str) -> Stored | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise _Refused(f"it cannot be opened: {problem.strerror}") from problem
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise _Refused("it is not a file")
        with open(descriptor, "rb") as file:
            head = file.read(_HEAD_BYTES)
            if len(head) < _HEAD_BYTES or not head.startswith(_MAGIC):
                raise _Refused("it has another format")
            tag = head[len(_MAGIC) : len(_MAGIC) + _TAG_BYTES]
            facts_length, size = _LENGTHS.unpack(head[-_LENGTHS.size :])
            if facts_length > _MAX_FACTS_BYTES or not 0 < size <= MAX_COMPILED_BYTES:
                raise _Refused("its sizes are not possible")
            facts = file.read(facts_length)
            memory = memory_file(0)
            try:
                copied = 0
                while copied <= size and (chunk := file.read(min(_CHUNK_BYTES, size + 1 - copied))):
                    copied += os.write(memory, chunk)
                if copied != size:
                    raise _Refused("it has another length")
                fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)
                with mmap.mmap(memory, size, mmap.MAP_SHARED, mmap.PROT_READ) as compiled:
                    if not hmac.compare_digest(tag, self._tag(digest, engine, facts, compiled)):
                        raise _Refused("its tag is not this installation's for this module")
                stored = Stored(memory, size, _FACTS.decode(facts))
                memory = -1
                # Its time says when it was last used. On a disk that cannot be written it stays what it was.
                with contextlib.suppress(OSError):
                    os.utime(descriptor)
                return stored
            finally:
                if memory >= 0:
                    os.close(memory)


def seal(descriptor: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)


def seal_size(descriptor: int) -> None:
    """Let the other process write, but not change the length that the daemon will map."""
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)


_MS_PER_SECOND: Final = 1_000
# Names of imports are in it, and their types.
_MAX_SAID_CHARS: Final = 2_048


async def compile_in_process(source: WorkerSource, settings: PoolSettings, module: bytes) -> Stored:
    """Have a module compiled by a process of its own, which is killed when it takes too long."""
    """Have a module compiled by a process of its own, which is killed when it takes too long."""
    given = await carry_out(lambda: fill_memory_file(module), os.close)
    made = -1
    try:
        made = memory_file(MAX_COMPILED_BYTES)
        seal_size(made)
        answer = await _ask(source, settings, Compile(size=len(module), room=MAX_COMPILED_BYTES), (given, made))
        if answer.kind == "link":
            raise LinkFailed(render_text(answer.message, _MAX_SAID_CHARS))
        if answer.kind or answer.facts is None or not 0 < answer.size <= MAX_COMPILED_BYTES:
            raise CompileFailed(render_text(answer.message, _MAX_SAID_CHARS) or "the compiler gave no module")
        # A copy: nothing that the compiling process could still write to.
        descriptor = await carry_out(lambda: _copy(made, answer.size), os.close)
        return Stored(descriptor, answer.size, answer.facts)
    finally:
        os.close(given)
        if made >= 0:
            os.close(made)


async def _ask(
    source: WorkerSource, settings: PoolSettings, question: Compile, descriptors: tuple[int, ...]
) -> Compiled:
    link = WorkerLink(*await source.make(COMPILER))
    try:
        async with asyncio.timeout(settings.compile_timeout_ms / _MS_PER_SECOND):
            await link.send(question, descriptors)
            answer = await link.receive()
    except TimeoutError:
        raise CompileFailed(
            f"compiling took longer than {settings.compile_timeout_ms} ms", timeout_ms=settings.compile_timeout_ms
        ) from None
    except LinkBroken as problem:
        raise CompileFailed("the compiler ended: the module needs more memory than it may have") from problem
    finally:
        link.close()
    if not isinstance(answer, Compiled):
        raise CompileFailed("the compiler did not keep the protocol")
    return answer


def _copy(descriptor: int, size: int) -> int:
    with mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ) as content:
        copy = fill_memory_file(content[:size])
    seal(copy)
    return copy
