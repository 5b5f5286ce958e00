"""Profiles as values: what a principal calls them, and what of them is kept."""

import re
from typing import Any, Final

import msgspec

from palyra.browser.profile_errors import BadProfile
from palyra.ids import Ulid
from palyra.limits import MIB

MAX_PROFILES_PER_PRINCIPAL: Final = 16
# 256 principals with all of theirs: keeps the registry, which is written whole, within a few MiB.
MAX_PROFILES: Final = 4_096
MAX_NAME_CHARS: Final = 64
# A browser's data directory without its caches has a few MiB; ten times that is a site that stores videos.
MAX_SNAPSHOT_BYTES: Final = 64 * MIB
# What a session can have open, and what a person grants.
MAX_TABS: Final = 32
MAX_PERMISSIONS: Final = 256
MAX_TEXT_CHARS: Final = 4_096
DEFAULT_COLOUR: Final = "#5f6368"
_COLOUR: Final = re.compile(r"#[0-9a-f]{6}")


class ProfileId(Ulid):
    __slots__ = ()
    noun = "profile id"


class BrowserProfileRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``persistence_id`` is of one line of states: a profile that is begun anew gets another, so that nothing of the
    old line fits. ``revision`` grows with every state and is 0 before the first."""

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
    # Of the stored state: none before the first.
    key_id: str = ""
    digest: str = ""
    size: int = 0
    # The code of what was found wrong with the state, until the profile is begun anew.
    damaged: str = ""

    @property
    def has_state(self) -> bool:
        return bool(self.digest)


class TabState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str
    scroll_x: int = 0
    scroll_y: int = 0


class PersistedSessionSnapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of a session is there again in the next one: the browser's own data directory as an archive, the tabs, and
    the permissions that were granted (origin to names). Holds cookies: it is never shown.

    ``session_cookies`` is a storage state of those that Chromium forgets when it ends: many logins are nothing else."""

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
    """Of what was authenticated. Raises ``msgspec.MsgspecError``."""
    return msgspec.msgpack.decode(raw, type=PersistedSessionSnapshot)


def checked_name(name: str) -> str:
    if not 1 <= len(name) <= MAX_NAME_CHARS or not name.isprintable() or name != name.strip():
        raise BadProfile(f"{name[:MAX_NAME_CHARS]!r} is not a name for a profile")
    return name


def checked_colour(colour: str) -> str:
    if not _COLOUR.fullmatch(colour):
        raise BadProfile(f"{colour[:16]!r} is not a colour")
    return colour


def checked_lasting(persistence: bool, private: bool) -> None:
    if persistence and private:
        raise BadProfile("a private profile is not persistent")
