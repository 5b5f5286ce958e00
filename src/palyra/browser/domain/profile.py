"""Profiles as values, and their errors."""

import re
from typing import Any, Final

import msgspec

from palyra.errors import InvalidInput, LimitExceeded, Tampered, Unavailable
from palyra.ids import Ulid
from palyra.limits import MIB


class NoSuchProfile(InvalidInput):
    """A profile of another principal looks the same."""

    code = "browser.unknown_profile"
    hint = "`palyra browser profiles list` shows the profiles there are"
    http_status = 404


class BadProfile(InvalidInput):
    code = "browser.bad_profile"
    hint = "a name is 1 to 64 visible characters, a colour is #rrggbb, and a private profile is not persistent"


class ProfileExists(InvalidInput):
    code = "browser.profile_exists"
    hint = "choose another name: a principal's profiles have different ones"
    http_status = 409


class TooManyProfiles(LimitExceeded):
    code = "browser.too_many_profiles"
    hint = "delete a profile first"


class NotPersistent(InvalidInput):
    code = "browser.profile_not_persistent"
    hint = "a private profile, or one without persistence, keeps nothing"


class ProfileChanged(InvalidInput):
    """Another session saved the profile since it was loaded."""

    code = "browser.profile_changed"
    hint = "the newer state was kept; use a profile in one session at a time"
    http_status = 409


class SnapshotTooLarge(LimitExceeded):
    code = "browser.snapshot_too_large"
    hint = "the state before this session was kept; clear the site data, or use another profile"


class ProfileDamaged(Tampered):
    """The stored state is not the one that was saved. It is kept aside, and the profile can be reset."""

    code = "browser.profile_damaged"
    hint = "the damaged state lies in the folder `aside`; reset the profile or make another, and log in again"


class ProfileRolledBack(Tampered):
    """The stored state is genuine and older than the last saved one."""

    code = "browser.profile_rolled_back"
    hint = "somebody put back an older file, which lies in the folder `aside`; reset the profile, and log in again"


class ProfilesFolderRolledBack(Tampered):
    """The profiles are genuine and not the last ones: their whole folder is an older copy, or empty."""

    code = "browser.profiles_folder_rolled_back"
    hint = (
        "an older copy of the folder of profiles was put back, or it was emptied; bring back the newest one, or go on "
        "from this one with `palyra browser profiles accept`"
    )


class NothingToAccept(InvalidInput):
    code = "browser.profiles_not_rolled_back"
    hint = "the profiles are the newest that are known: use them"
    http_status = 409


class ProfileKeyMissing(Unavailable):
    code = "browser.profile_key_missing"
    hint = "nothing was changed: bring back the key that sealed the profiles, or move their folder away"


class ProfileKeyBad(InvalidInput):
    code = "browser.profile_key_bad"
    hint = (
        "a key is 32 random bytes in base 64, as `openssl rand -base64 32` prints, in a file with mode 0600 if in one"
    )


class UnknownProfileFormat(Unavailable):
    code = "browser.profile_unknown_format"
    hint = "the profiles were written by a newer Palyra: use that one"


class ProfilesUnusable(Unavailable):
    code = "browser.profiles_unusable"
    hint = "check the folder of profiles: it has to be the daemon's alone, on a disk with space, used by one daemon"


MAX_PROFILES_PER_PRINCIPAL: Final = 16
# 256 principals with all of theirs: keeps the registry, which is written whole, within a few MiB.
MAX_PROFILES: Final = 4_096
MAX_NAME_CHARS: Final = 64
# A browser's data directory without its caches has a few MiB; ten times that is a site that stores videos.
MAX_SNAPSHOT_BYTES: Final = 64 * MIB
# A session can have this many open, and a person can grant this many.
MAX_TABS: Final = 32
MAX_PERMISSIONS: Final = 256
MAX_TEXT_CHARS: Final = 4_096
DEFAULT_COLOUR: Final = "#5f6368"
_COLOUR: Final = re.compile(r"#[0-9a-f]{6}")


class ProfileId(Ulid):
    __slots__ = ()
    noun = "profile id"


class BrowserProfileRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``persistence_id`` names one line of states. A reset profile gets another, so that no old state fits.

    ``revision`` grows with every state and is 0 before the first.
    """

    profile_id: str
    principal: str
    name: str
    colour: str
    persistence: bool
    private: bool
    persistence_id: str
    created_ms: int
    updated_ms: int
    revision: int = 0
    # Of the stored state; empty before the first.
    key_id: str = ""
    digest: str = ""
    size: int = 0
    # The error code of a damaged state, until the profile is reset.
    damaged: str = ""

    @property
    def has_state(self) -> bool:
        return bool(self.digest)


class TabState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str
    scroll_x: int = 0
    scroll_y: int = 0


class PersistedSessionSnapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of a session that returns in the next one. It holds cookies and is never shown.

    ``archive`` is the browser's data directory, and ``permissions`` maps origins to names. ``session_cookies`` is
    a storage state of the cookies that Chromium forgets when it ends: many logins are nothing else.
    """

    archive: bytes
    tabs: tuple[TabState, ...] = ()
    permissions: dict[str, tuple[str, ...]] = {}
    session_cookies: bytes = b""

    def __repr__(self) -> str:
        return f"<PersistedSessionSnapshot of {len(self.archive)} bytes, {len(self.tabs)} tabs>"


def encode_snapshot(snapshot: PersistedSessionSnapshot) -> bytes:
    if len(snapshot.tabs) > MAX_TABS or len(snapshot.permissions) > MAX_PERMISSIONS:
        raise BadProfile(f"a state has at most {MAX_TABS} tabs and permissions for {MAX_PERMISSIONS} origins")
    texts: list[Any] = [tab.url for tab in snapshot.tabs]
    texts += [text for origin, names in snapshot.permissions.items() for text in (origin, *names)]
    if any(len(text) > MAX_TEXT_CHARS for text in texts):
        raise BadProfile(f"a tab's address or a permission has more than {MAX_TEXT_CHARS} characters")
    return msgspec.msgpack.encode(snapshot)


def decode_snapshot(raw: bytes) -> PersistedSessionSnapshot:
    return msgspec.msgpack.decode(raw, type=PersistedSessionSnapshot)


def checked_name(name: str) -> str:
    if not 1 <= len(name) <= MAX_NAME_CHARS or not name.isprintable() or name != name.strip():
        raise BadProfile(f"{name[:MAX_NAME_CHARS]!r} is not a name for a profile")
    return name


def check_colour(colour: str) -> str:
    if not _COLOUR.fullmatch(colour):
        raise BadProfile(f"{colour[:16]!r} is not a colour")
    return colour


def check_persistence(persistence: bool, private: bool) -> None:
    if persistence and private:
        raise BadProfile("a private profile is not persistent")
