"""Compiled modules, in memory and on disk.

Compiled code is trusted when it is loaded, so a file is only ever used under a tag that this installation's key made
for exactly this module and this engine.

The bytes that were checked are the bytes that are loaded: a file is copied into a memory file first, sealed, and never
looked at again. The folder is bounded: what was loaded longest ago goes first (``cache_folder``).
"""

import contextlib
import fcntl
import hashlib
import hmac
import mmap
import os
import stat
import struct
from collections import OrderedDict
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import msgspec

from palyra.wasm.cache_folder import CacheFolder, Removed
from palyra.wasm.limits import MAX_COMPILED_BYTES
from palyra.wasm.module_facts import ModuleFacts

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


def filled_memory_file(content: bytes) -> int:
    descriptor = memory_file(0)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    return descriptor


class CompiledCache:
    """``on_refused`` is told of files that were not what their name says, with a reason."""

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
        """Makes room by letting go of what was not used for longest, but never of this one."""
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
        """Blocking. A file that cannot be written is no error: the module is compiled again next time."""
        facts = _ENCODER.encode(stored.facts)
        target = self.path(digest, engine)
        scratch = target.with_suffix(f".{os.getpid()}.{os.urandom(8).hex()}")
        with mmap.mmap(stored.descriptor, stored.size, mmap.MAP_SHARED, mmap.PROT_READ) as compiled:
            head = _MAGIC + self._tag(digest, engine, facts, compiled) + _LENGTHS.pack(len(facts), stored.size) + facts
            try:
                with self._folder.written_to():
                    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                    with open(descriptor, "wb") as file:
                        file.write(head)
                        file.write(compiled)
                    os.replace(scratch, target)
            except OSError:
                with contextlib.suppress(OSError):
                    scratch.unlink()

    def make_room(self, kept: Collection[Path]) -> Removed:
        """Blocking. ``kept`` are the files of what is in memory: their modules run without being loaded again."""
        return self._folder.make_room([path.name for path in kept])

    def kept_files(self) -> list[Path]:
        return [self.path(digest, engine) for digest, engine in self._kept]

    def read(self, digest: bytes, engine: str) -> Stored | None:
        """Blocking. None when there is no file, or none that can be trusted; such a one is removed."""
        path = self.path(digest, engine)
        try:
            return self._checked(path, digest, engine)
        except _Refused as refused:
            self._on_refused(path.name, str(refused))
            with contextlib.suppress(OSError):
                path.unlink()
            return None

    def _checked(self, path: Path, digest: bytes, engine: str) -> Stored | None:
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
    """The other side may write, but neither lengthen nor shorten what the daemon will map."""
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
