"""Profiles as principals see them: their own, by name, with the state of the last session.

Every request names a principal, and another's profile looks like none. The folder cannot know that it is an older
copy of itself. palyrad remembers its last change and reports it (``expect``). A folder that does not follow that
change is left alone and refused until an operator accepts it.
"""

import base64
import logging
import os
import secrets
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Self

import msgspec

from palyra.browser.domain import profile
from palyra.browser.domain.profile import BrowserProfileRecord, PersistedSessionSnapshot, ProfileId
from palyra.browser.domain.session_api import ProfilesHead
from palyra.browser.profiles.encryption import KEY_BYTES, VARIABLE, RandomBytes, StateKeys, parse_keys
from palyra.browser.profiles.ledger import Finding, ProfileFiles, ProfileLedger, state_name
from palyra.errors import PalyraError
from palyra.vault.key_file import read_private

log = logging.getLogger("palyra.browserd")

_MAX_KEY_FILE_BYTES: Final = 1_024
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Rotation(msgspec.Struct, frozen=True):
    """Ids of the profiles whose state is under the active key now, and of those whose state did not verify."""

    sealed: tuple[str, ...]
    damaged: tuple[str, ...]


class ProfileStore:
    """Blocks on the disk: call it on threads, any number at once. One process has a folder at a time."""

    def __init__(
        self,
        folder: Path,
        keys: StateKeys,
        *,
        now_ms: Callable[[], int],
        random: RandomBytes = os.urandom,
    ) -> None:
        self._now_ms = now_ms
        self._guard = threading.RLock()
        self._files = ProfileFiles(folder)
        try:
            self._ledger = ProfileLedger(self._files, keys, random)
        except BaseException:
            self._files.close()
            raise
        self._listeners: list[Callable[[], None]] = []
        self._ledger.changed = self._notify
        # The change that these profiles should follow on and do not.
        self._missed: ProfilesHead | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._guard:
            self._files.close()

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(self._ledger.findings)

    @property
    def head(self) -> ProfilesHead:
        registry = self._ledger.registry
        return ProfilesHead(generation=registry.generation, mark=registry.mark, rolled_back=self._missed is not None)

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def expect(self, last_head: ProfilesHead) -> ProfilesHead:
        """Use the profiles from now on only if they follow this change."""
        with self._guard:
            self._missed = None if self._ledger.follows(last_head) else last_head
            return self.head

    def accept(self) -> ProfilesHead:
        """Accept an older copy as the newest. The one that it replaces does not fit any more."""
        with self._guard:
            if self._missed is None:
                raise profile.NothingToAccept("the profiles are not an older copy of themselves")
            self._ledger.supersede(self._missed)
            self._missed = None
            self._notify()
            return self.head

    def profiles(self, principal: str) -> list[BrowserProfileRecord]:
        self._refuse_rolled_back()
        return [record for record in self._ledger.registry.profiles if record.principal == principal]

    def every_profile(self) -> list[BrowserProfileRecord]:
        return list(self._ledger.registry.profiles)

    def get(self, principal: str, profile_id: str) -> BrowserProfileRecord:
        self._refuse_rolled_back()
        record = self._ledger.record(profile_id)
        if record is None or record.principal != principal:
            raise profile.NoSuchProfile(f"there is no profile {profile_id[:40]!r}")
        return record

    def create(
        self,
        principal: str,
        name: str,
        *,
        colour: str = profile.DEFAULT_COLOUR,
        persistence: bool = True,
        private: bool = False,
    ) -> BrowserProfileRecord:
        profile.check_persistence(persistence, private)
        now = self._now_ms()
        record = BrowserProfileRecord(
            profile_id=str(ProfileId.new()),
            principal=principal,
            name=profile.checked_name(name),
            colour=profile.check_colour(colour),
            persistence=persistence,
            private=private,
            persistence_id=str(ProfileId.new()),
            created_ms=now,
            updated_ms=now,
        )
        with self._guard:
            own, every = self.profiles(principal), self._ledger.registry.profiles
            if len(own) >= profile.MAX_PROFILES_PER_PRINCIPAL or len(every) >= profile.MAX_PROFILES:
                raise profile.TooManyProfiles(
                    f"{principal} has {len(own)} profiles, of {profile.MAX_PROFILES_PER_PRINCIPAL}"
                )
            self._refuse_name(own, name)
            self._ledger.commit((*every, record))
        return record

    def rename(self, principal: str, profile_id: str, *, name: str, colour: str) -> BrowserProfileRecord:
        with self._guard:
            record = self.get(principal, profile_id)
            if name != record.name:
                self._refuse_name(self.profiles(principal), name)
            after = msgspec.structs.replace(
                record, name=profile.checked_name(name), colour=profile.check_colour(colour), updated_ms=self._now_ms()
            )
            self._ledger.replace(after)
        return after

    def load(self, principal: str, profile_id: str) -> PersistedSessionSnapshot | None:
        with self._guard:
            record = self.get(principal, profile_id)
            self._refuse_damaged(record)
            if not record.persistence or not record.has_state:
                return None
            raw = self._ledger.read_state(record)
        try:
            return profile.decode_snapshot(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise profile.ProfileDamaged(f"the state of the profile {record.name!r} is of no known form") from error

    def save(
        self, principal: str, profile_id: str, snapshot: PersistedSessionSnapshot, *, based_on: int
    ) -> BrowserProfileRecord:
        """Save a state. Of two sessions with the same ``based_on`` revision, the first to end is kept."""
        plaintext = profile.encode_snapshot(snapshot)
        if len(snapshot.archive) > profile.MAX_SNAPSHOT_BYTES:
            raise profile.SnapshotTooLarge(
                f"the state has {len(plaintext)} bytes; at most {profile.MAX_SNAPSHOT_BYTES} are kept"
            )
        with self._guard:
            record = self.get(principal, profile_id)
            if not record.persistence:
                raise profile.NotPersistent(f"the profile {record.name!r} keeps nothing")
            self._refuse_damaged(record)
            if record.revision != based_on:
                raise profile.ProfileChanged(f"the profile {record.name!r} was saved by another session meanwhile")
            return self._ledger.write_state(record, plaintext, self._now_ms())

    def reset(self, principal: str, profile_id: str) -> BrowserProfileRecord:
        """Empty a profile, damaged or not. No older file of it will fit again."""
        with self._guard:
            record = self.get(principal, profile_id)
            after = msgspec.structs.replace(
                record,
                persistence_id=str(ProfileId.new()),
                revision=record.revision + 1,
                key_id="",
                digest="",
                size=0,
                damaged="",
                updated_ms=self._now_ms(),
            )
            self._ledger.replace(after, self._states_of(record))
        return after

    def delete(self, principal: str, profile_id: str) -> BrowserProfileRecord:
        with self._guard:
            record = self.get(principal, profile_id)
            kept = [each for each in self._ledger.registry.profiles if each.profile_id != profile_id]
            self._ledger.commit(kept, self._states_of(record))
        return record

    def rotate(self) -> Rotation:
        """Put everything under the active key. After an interruption, the next call goes on."""
        sealed: list[str] = []
        damaged: list[str] = []
        with self._guard:
            # The registry comes first: from here on no change is under an older key.
            self._ledger.commit(self._ledger.registry.profiles, resealed=True)
            for record in self._ledger.registry.profiles:
                if not record.has_state or record.key_id == self._ledger.key_id:
                    continue
                try:
                    plaintext = self._ledger.read_state(record)
                except (profile.ProfileDamaged, profile.ProfileRolledBack):
                    damaged.append(record.profile_id)
                    continue
                self._ledger.write_state(record, plaintext, record.updated_ms, resealed=True)
                sealed.append(record.profile_id)
        return Rotation(tuple(sealed), tuple(damaged))

    def _notify(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    def _refuse_rolled_back(self) -> None:
        if (missed := self._missed) is not None:
            found = self._ledger.registry.generation
            raise profile.ProfilesFolderRolledBack(
                f"the profiles were changed {missed.generation} times, and those that are there do not follow on that",
                generation=missed.generation,
                found=found,
            )

    def _refuse_damaged(self, record: BrowserProfileRecord) -> None:
        if record.damaged == profile.ProfileRolledBack.code:
            raise profile.ProfileRolledBack(f"the state of the profile {record.name!r} was older than the last one")
        if record.damaged:
            raise profile.ProfileDamaged(f"the state of the profile {record.name!r} did not verify")

    def _states_of(self, record: BrowserProfileRecord) -> list[str]:
        return [state_name(record.profile_id, record.revision)] if record.has_state else []

    def _refuse_name(self, own: list[BrowserProfileRecord], name: str) -> None:
        if any(record.name == name for record in own):
            raise profile.ProfileExists(f"there is a profile {name!r} already")


def state_keys(environ: Mapping[str, str], path: Path, profiles: Path) -> StateKeys:
    """Read the keys. They may not be inside ``profiles``: they would travel with every copy of it."""
    raw = environ.get(VARIABLE, "")
    if raw.strip():
        return parse_keys(raw, VARIABLE)
    if Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(profiles)):
        raise profile.ProfileKeyBad(f"{path} is inside the folder that it opens")
    if not os.path.lexists(path):
        _create_key(path)
    return parse_keys(_read_keys(path), str(path))


def _create_key(path: Path) -> None:
    """Create the file completely or not at all: half a key would be another key."""
    content = base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n"
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(beside, _CREATE, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            # A link, and not a rename: another daemon's key that came first stays.
            os.link(beside, path, follow_symlinks=False)
        except FileExistsError:
            pass
        finally:
            os.unlink(beside)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise profile.ProfileKeyBad(f"cannot make {path}: {error.strerror}") from error


def _read_keys(path: Path) -> str:
    try:
        raw = read_private(path, _MAX_KEY_FILE_BYTES)
    except PalyraError as unsafe:
        raise profile.ProfileKeyBad(unsafe.message) from unsafe
    if raw is None or not raw.isascii():
        raise profile.ProfileKeyBad(f"{path} is not a file of keys")
    return raw.decode("ascii")


def open_profiles(
    folder: Path, key_file: Path, environ: Mapping[str, str], *, now_ms: Callable[[], int]
) -> ProfileStore:
    """Open the store, log its findings, and put every state under the first key. This blocks on the disk."""
    keys = state_keys(environ, key_file, folder)
    store = ProfileStore(folder, keys, now_ms=now_ms)
    try:
        for each in store.findings:
            log.warning("browser profiles: %s: %s", each.found.value.replace("_", " "), each.file)
        if keys.older:
            rotated = store.rotate()
            log.info("browser profiles: %d states were put under the newest key", len(rotated.sealed))
            for profile_id in rotated.damaged:
                log.warning("browser profiles: the state of %s did not verify, and stays under its old key", profile_id)
    except BaseException:
        store.close()
        raise
    return store
