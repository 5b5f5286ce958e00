"""The registry and the states of profiles on disk, through crashes and against changes.

A state is written under its next revision first and counts when the registry names it. Then the one before goes. If
the daemon dies in between, the next one finds a genuine state of the next revision and lets it count: nothing is
lost. The registry is stored twice. Files that do not verify are set aside and reported as findings; the rest works
on.
"""

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import re
import stat
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from palyra.browser.domain.profile import (
    BrowserProfileRecord,
    ProfileDamaged,
    ProfileKeyMissing,
    ProfileRolledBack,
    ProfilesUnusable,
    UnknownProfileFormat,
)
from palyra.browser.domain.session_api import ProfilesHead
from palyra.browser.profiles.encryption import (
    MARK_BYTES,
    MAX_FILE_BYTES,
    MAX_LINEAGE,
    MAX_REGISTRY_BYTES,
    RandomBytes,
    Registry,
    StateKeys,
    place_of,
    read_header,
    seal,
    seal_registry,
    unseal,
    unseal_registry,
)
from palyra.config.state_dir import replace_file
from palyra.errors import PalyraError
from palyra.ids import Ulid

ASIDE: Final = "aside"
# Enough to find out what happened; the oldest goes when another comes.
MAX_ASIDE: Final = 64
_LOCK: Final = "lock"
_TEMPORARY: Final = ".new"
_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
# A link or a socket in a file's place is damage.
_NO_FILE: Final = (errno.ELOOP, errno.ENXIO)
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ProfileFiles:
    """The folder of profiles: files that are complete or absent. One process has it until ``close`` or its death."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = self._aside = self._lock = -1
        try:
            path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            self._folder = os.open(path, _DIRECTORY)
            status = os.fstat(self._folder)
            if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise ProfilesUnusable(f"{path} is open to others")
            self._take_lock()
            with contextlib.suppress(FileExistsError):
                os.mkdir(ASIDE, _FOLDER_MODE, dir_fd=self._folder)
            self._aside = os.open(ASIDE, _DIRECTORY, dir_fd=self._folder)
            for name in os.listdir(self._folder):
                if name.endswith(_TEMPORARY):
                    os.unlink(name, dir_fd=self._folder)
        except OSError as error:
            self.close()
            raise self._unusable("use", "its folder", error) from error
        except ProfilesUnusable:
            self.close()
            raise

    def close(self) -> None:
        for descriptor in (self._lock, self._aside, self._folder):
            if descriptor >= 0:
                os.close(descriptor)
        self._folder = self._aside = self._lock = -1

    def names(self) -> list[str]:
        return sorted(name for name in os.listdir(self._folder) if name not in (ASIDE, _LOCK))

    def read(self, name: str, most: int) -> bytes | None:
        """Read at most one byte more than ``most``. None if the name is absent, empty if it is not a file."""
        try:
            descriptor = os.open(name, _READ, dir_fd=self._folder)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return b""
                with open(descriptor, "rb", closefd=False) as file:
                    return file.read(most + 1)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _NO_FILE:
                return b""
            raise self._unusable("read", name, error) from error

    def write(self, name: str, content: bytes) -> None:
        """Write durably. After a crash either the old or the new content is there."""
        try:
            replace_file(self._folder, name, content)
        except OSError as error:
            raise self._unusable("write", name, error) from error

    def remove(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._unusable("remove", name, error) from error

    def set_aside(self, name: str) -> None:
        try:
            os.rename(name, f"{Ulid.new()}-{name}"[:200], src_dir_fd=self._folder, dst_dir_fd=self._aside)
            for old in sorted(os.listdir(self._aside))[:-MAX_ASIDE]:
                # A folder that somebody made here stays.
                with contextlib.suppress(OSError):
                    os.unlink(old, dir_fd=self._aside)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._unusable("set aside", name, error) from error

    def _take_lock(self) -> None:
        self._lock = os.open(
            _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE, dir_fd=self._folder
        )
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ProfilesUnusable(f"another daemon uses {self._path}") from None

    def _unusable(self, verb: str, name: str, error: OSError) -> ProfilesUnusable:
        return ProfilesUnusable(f"cannot {verb} {name} in {self._path}: {error.strerror}")


log = logging.getLogger("palyra.browser")
REGISTRY: Final = "profiles.enc"
COPY: Final = "profiles.copy.enc"
_STATE: Final = re.compile(r"([0-7][0-9A-HJKMNP-TV-Z]{25})\.([1-9][0-9]{0,17})\.enc")


class Found(StrEnum):
    """Findings of opening the folder, for the daemon's log."""

    REGISTRY_REPAIRED = "registry_repaired_from_copy"
    REGISTRY_LOST = "registry_set_aside"
    STATE_COMPLETED = "interrupted_save_completed"
    STATE_SET_ASIDE = "stray_state_set_aside"
    ROLLED_BACK = "registry_older_than_states"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    found: Found
    file: str
    profile_id: str = ""


def state_name(profile_id: str, revision: int) -> str:
    return f"{profile_id}.{revision}.enc"


class ProfileLedger:
    """Not thread-safe: its one user locks."""

    def __init__(self, files: ProfileFiles, keys: StateKeys, random: RandomBytes) -> None:
        self._files, self._keys, self._random = files, keys, random
        self.findings: list[Finding] = []
        # Called when another registry counts.
        self.changed: Callable[[], None] = lambda: None
        self.registry = self._opened_registry()
        self._sort_states()

    @property
    def key_id(self) -> str:
        return self._keys.active.key_id

    def commit(
        self, profiles: Iterable[BrowserProfileRecord], removing: Iterable[str] = (), *, resealed: bool = False
    ) -> None:
        """Store the profiles, then remove files. Only ``resealed`` states need no mark, and there may be many."""
        before = self.registry
        self._write(
            Registry(
                generation=before.generation + 1,
                profiles=tuple(profiles),
                removing=tuple(removing),
                lineage=before.lineage if resealed else self._grown(*before.lineage),
            )
        )

    def follows(self, last_head: ProfilesHead) -> bool:
        return not last_head.mark or last_head.mark in self.registry.lineage

    def supersede(self, last_head: ProfilesHead) -> None:
        before = self.registry
        generation = max(before.generation, last_head.generation) + 1
        lineage = self._grown(*before.lineage, last_head.mark)
        self._write(msgspec.structs.replace(before, generation=generation, lineage=lineage))

    def _grown(self, *marks: str) -> tuple[str, ...]:
        return (*marks, self._random(MARK_BYTES).hex())[-MAX_LINEAGE:]

    def _write(self, registry: Registry) -> None:
        raw = seal_registry(self._keys.active, registry, self._random)
        if len(raw) > MAX_REGISTRY_BYTES:
            raise ProfilesUnusable("the registry of profiles has no room for this")
        try:
            self._files.write(REGISTRY, raw)
        except ProfilesUnusable:
            # The disk may have stored it and failed afterwards: the stored registry counts.
            if self._files.read(REGISTRY, MAX_REGISTRY_BYTES) == raw:
                self._counts(registry)
            raise
        self._counts(registry)
        try:
            self._files.write(COPY, raw)
            for name in registry.removing:
                self._files.remove(name)
        except ProfilesUnusable as error:
            # The registry counts already. Opening the folder repairs the rest.
            log.warning("after a change of profiles: %s", error.message)

    def _counts(self, registry: Registry) -> None:
        self.registry = registry
        self.changed()

    def record(self, profile_id: str) -> BrowserProfileRecord | None:
        return next((each for each in self.registry.profiles if each.profile_id == profile_id), None)

    def replace(self, record: BrowserProfileRecord, removing: Iterable[str] = (), *, resealed: bool = False) -> None:
        kept = (record if each.profile_id == record.profile_id else each for each in self.registry.profiles)
        self.commit(kept, removing, resealed=resealed)

    def write_state(
        self, record: BrowserProfileRecord, plaintext: bytes, now_ms: int, *, resealed: bool = False
    ) -> BrowserProfileRecord:
        revision = record.revision + 1
        raw = seal(self._keys.active, place_of(record, revision), plaintext, self._random)
        name = state_name(record.profile_id, revision)
        after = self._with_state(record, revision, raw, self.key_id, now_ms)
        self._files.write(name, raw)
        try:
            superseded = [state_name(record.profile_id, record.revision)] if record.has_state else ()
            self.replace(after, superseded, resealed=resealed)
        except ProfilesUnusable:
            if self.record(record.profile_id) != after:
                self._files.remove(name)
            raise
        return after

    def read_state(self, record: BrowserProfileRecord) -> bytes:
        """Read the state that the registry names. Set it aside and raise the reason if it does not verify."""
        name = state_name(record.profile_id, record.revision)
        if record.key_id not in self._keys:
            raise ProfileKeyMissing(f"the state of the profile {record.name!r} is under the key {record.key_id}")
        raw = self._files.read(name, MAX_FILE_BYTES)
        try:
            return self._verified(record, raw)
        except (ProfileDamaged, ProfileRolledBack) as error:
            self._files.set_aside(name)
            self.replace(msgspec.structs.replace(record, damaged=error.code, digest="", key_id="", size=0))
            raise

    def _verified(self, record: BrowserProfileRecord, raw: bytes | None) -> bytes:
        if raw is None:
            raise ProfileDamaged(f"the state of the profile {record.name!r} is gone", reason="missing")
        if hashlib.sha256(raw).hexdigest() == record.digest:
            return unseal(self._keys, place_of(record, record.revision), raw)
        if (older := self._genuine(record, raw)) is not None and older < record.revision:
            raise ProfileRolledBack(
                f"the profile {record.name!r} was saved {record.revision} times, and the file is of the {older}. time",
                revision=record.revision,
                found=older,
            )
        raise ProfileDamaged(f"the state of the profile {record.name!r} is not what was saved", reason="changed")

    def _genuine(self, record: BrowserProfileRecord, raw: bytes) -> int | None:
        try:
            revision = read_header(raw).revision
            unseal(self._keys, place_of(record, revision), raw)
        except PalyraError:
            return None
        return revision

    def _opened_registry(self) -> Registry:
        good: dict[str, Registry] = {}
        bad: dict[str, PalyraError] = {}
        for name in (REGISTRY, COPY):
            raw = self._files.read(name, MAX_REGISTRY_BYTES)
            if raw is None:
                continue
            try:
                good[name] = unseal_registry(self._keys, raw)
            except PalyraError as error:
                bad[name] = error
        if good:
            self._set_aside(bad, Found.REGISTRY_REPAIRED)
            return max(good.values(), key=lambda registry: registry.generation)
        for why in bad.values():
            # This does not prove damage, so nothing is touched.
            if isinstance(why, (ProfileKeyMissing, UnknownProfileFormat)):
                raise why
        self._set_aside(self._files.names(), Found.REGISTRY_LOST)
        return Registry(generation=0)

    def _sort_states(self) -> None:
        after = {record.profile_id: record for record in self.registry.profiles}
        removing: list[str] = []
        for name in self._files.names():
            match = _STATE.fullmatch(name)
            if name in (REGISTRY, COPY):
                continue
            if name in self.registry.removing:
                removing.append(name)
                continue
            record = after.get(match[1]) if match else None
            if match is None or record is None or not record.persistence:
                self._set_aside([name], Found.STATE_SET_ASIDE)
                continue
            changed = self._sorted(record, name, int(match[2]), removing)
            after[record.profile_id] = changed
        if removing or tuple(after.values()) != self.registry.profiles or self._needs_copy():
            self.commit(after.values(), removing)

    def _sorted(
        self, record: BrowserProfileRecord, name: str, revision: int, removing: list[str]
    ) -> BrowserProfileRecord:
        if revision == record.revision and record.has_state:
            return record
        raw = self._files.read(name, MAX_FILE_BYTES) or b""
        if revision < record.revision or self._genuine(record, raw) != revision:
            self._set_aside([name], Found.STATE_SET_ASIDE, record.profile_id)
            return record
        if revision == record.revision + 1 and not record.damaged:
            self.findings.append(Finding(found=Found.STATE_COMPLETED, file=name, profile_id=record.profile_id))
            if record.has_state:
                removing.append(state_name(record.profile_id, record.revision))
            key_id = read_header(raw).key_id
            return self._with_state(record, revision, raw, key_id, record.updated_ms)
        # Genuine and further on than the registry can have been: that is from before.
        self._set_aside([name, state_name(record.profile_id, record.revision)], Found.ROLLED_BACK, record.profile_id)
        return msgspec.structs.replace(
            record, damaged=ProfileRolledBack.code, revision=revision, digest="", key_id="", size=0
        )

    def _needs_copy(self) -> bool:
        raw = self._files.read(REGISTRY, MAX_REGISTRY_BYTES)
        return raw is None or raw != self._files.read(COPY, MAX_REGISTRY_BYTES)

    def _with_state(
        self, record: BrowserProfileRecord, revision: int, raw: bytes, key_id: str, now_ms: int
    ) -> BrowserProfileRecord:
        digest = hashlib.sha256(raw).hexdigest()
        return msgspec.structs.replace(
            record, revision=revision, digest=digest, key_id=key_id, size=len(raw), updated_ms=now_ms
        )

    def _set_aside(self, names: Iterable[str], found: Found, profile_id: str = "") -> None:
        for name in list(names):
            self._files.set_aside(name)
            self.findings.append(Finding(found=found, file=name, profile_id=profile_id))
