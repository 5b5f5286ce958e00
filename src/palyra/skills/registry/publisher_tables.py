"""Publishers' keys and the revocation list in SQL. Every change is in the journal with it.

A row that holds no key is worth nothing and is in nobody's way: it is marked as unreadable, on record, and stays until
the key is removed or added again.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from palyra.clock import rfc3339
from palyra.errors import InvalidInput, LimitExceeded
from palyra.journal.search import RARE
from palyra.skills.limits import MAX_KEYS_PER_PUBLISHER, MAX_PUBLISHERS
from palyra.skills.registry.lifecycle import read_payload
from palyra.skills.registry.records import UnreadableKey
from palyra.skills.trust.publisher_keys import (
    KeyNotThePublishers,
    KeyRevoked,
    KeySource,
    KeyState,
    PublisherKey,
    VerifiedRotation,
)
from palyra.store.event import NewEvent
from palyra.store.port import Store, Transaction

_LOG = logging.getLogger("palyra.skills")
# Read as bytes: a text that is not UTF-8 must not keep the other rows from being read.
_TEXTS: Final = ("publisher", "key_id", "source", "state", "replaces", "added_by", "reason")
_OTHERS: Final = ("public_key", "added_ms", "ended_ms")
_COLUMNS: Final = ", ".join((*(f"CAST({name} AS BLOB)" for name in _TEXTS), *_OTHERS))
_OF_PLACE: Final = "CAST(publisher AS BLOB) = ? AND CAST(key_id AS BLOB) = ?"
# What a row that was found unreadable has for a state, so that this is recorded once. No key has it.
_UNREADABLE: Final = "unreadable"
_MAX_WHY_CHARS: Final = 200
# The record of that, which keeps the cause: the mark may stand where the cause stood.
_FINDINGS: Final = f"SELECT payload FROM events WHERE kind = 'skill.key_unreadable' AND {RARE} ORDER BY seq DESC"  # noqa: S608
_CAUSE_UNKNOWN: Final = "it is marked as unreadable, and the journal does not say why"
# The events that say that a publisher was met, with its name in their payload.
_MET: Final = ("skill.key_rotated", "skill.publisher_added", "skill.publisher_pinned")
_MEETINGS: Final = f"SELECT payload FROM events WHERE kind IN ({', '.join('?' * len(_MET))}) AND {RARE}"  # noqa: S608


class UnknownPublisherKey(InvalidInput):
    code = "skill.unknown_key"
    hint = "`palyra skill trust list` shows publishers and their keys"
    http_status = 404


class TooManyKeys(LimitExceeded):
    code = "skill.too_many_keys"
    hint = "remove keys and publishers that are not used any more"


class PublisherTables:
    """Trust inside one transaction."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def keys(self, publisher: str) -> list[PublisherKey]:
        rows = self._tx.execute(
            f"SELECT {_COLUMNS} FROM skill_keys WHERE publisher = ? ORDER BY added_ms, key_id",  # noqa: S608
            (publisher,),
        )
        return [found for found in map(_read, rows) if isinstance(found, PublisherKey)]

    def met_on_record(self, publisher: str) -> bool:
        """Tell whether the journal has a record of this publisher, whatever the tables have."""
        payloads = self._tx.execute(_MEETINGS, _MET)
        return any(read_payload(payload).get("publisher") == publisher for (payload,) in payloads)

    def unreadable(self, publisher: str) -> list[UnreadableKey]:
        rows = self._tx.execute(
            f"SELECT {_COLUMNS} FROM skill_keys WHERE publisher = ? ORDER BY key_id",  # noqa: S608
            (publisher,),
        )
        return _with_causes((found for found in map(_read, rows) if isinstance(found, UnreadableKey)), self._tx.execute)

    def fail_unreadable(self, found: Iterable[UnreadableKey], *, actor: str) -> None:
        """Mark the rows and record it, unless that was done before. The other columns stay for an investigation."""
        for row in found:
            self._tx.execute(
                f"UPDATE skill_keys SET state = ? WHERE {_OF_PLACE} AND state <> ?",  # noqa: S608
                (_UNREADABLE, *row.place, _UNREADABLE),
            )
            if self._tx.changed():
                refusal = row.refusal()
                payload = {
                    "publisher": row.publisher,
                    "key_id": row.key_id,
                    "state": row.state,
                    "why": row.why,
                    "reason": f"{refusal.code}: {refusal.message}",
                }
                self._tx.append(NewEvent(kind="skill.key_unreadable", actor=actor, payload=payload))

    def revoked(self) -> frozenset[str]:
        """List the revoked key ids. One that is not text revokes nothing and must not block the others."""
        rows = self._tx.execute("SELECT CAST(key_id AS BLOB) FROM skill_revoked_keys")
        return frozenset(row[0].decode(errors="backslashreplace") for row in rows)

    def add(self, publisher: str, key_id: str, public_key: bytes, source: KeySource, *, actor: str) -> PublisherKey:
        """List a key. One that was pinned on first use becomes an operator's word."""
        if key_id in self.revoked():
            raise KeyRevoked(f"{key_id} was revoked and cannot be trusted again")
        keys = self.keys(publisher)
        known = next((key for key in keys if key.key_id == key_id), None)
        if known is not None and known.state is KeyState.ACTIVE and known.source in (source, KeySource.ALLOWLISTED):
            return known
        listed = [key for key in keys if key.state is not KeyState.REMOVED]
        ((publishers,),) = self._tx.execute("SELECT COUNT(DISTINCT publisher) FROM skill_keys WHERE state <> 'removed'")
        too_many = known not in listed and len(listed) >= MAX_KEYS_PER_PUBLISHER
        if too_many or (not listed and publishers >= MAX_PUBLISHERS):
            raise TooManyKeys(f"there are too many keys of {publisher}, or too many publishers")
        added = PublisherKey(
            publisher=publisher,
            key_id=key_id,
            public_key=public_key,
            source=source,
            added_ms=self._tx.now_ms,
            added_by=actor,
        )
        self._put(added)
        kind = "skill.publisher_pinned" if source is KeySource.FIRST_USE else "skill.publisher_added"
        _record(self._tx, kind, added, actor)
        return added

    def rotate(self, rotation: VerifiedRotation, *, actor: str) -> PublisherKey:
        """Replace a key. The new one is worth what the old one was; the old one signs nothing new."""
        if rotation.new_key_id in self.revoked():
            raise KeyRevoked(f"{rotation.new_key_id} was revoked and cannot be trusted again")
        keys = {key.key_id: key for key in self.keys(rotation.publisher)}
        unreadable = {row.key_id: row for row in self.unreadable(rotation.publisher)}
        if rotation.old_key_id in unreadable:
            raise unreadable[rotation.old_key_id].refusal()
        old = keys.get(rotation.old_key_id)
        if old is None or old.state is not KeyState.ACTIVE:
            raise KeyNotThePublishers(f"{rotation.old_key_id} is not a key of {rotation.publisher} in force")
        if rotation.new_key_id in keys or rotation.new_key_id in unreadable:
            raise KeyNotThePublishers(f"{rotation.new_key_id} was a key of {rotation.publisher} before")
        self._end(old, KeyState.RETIRED, f"replaced by {rotation.new_key_id}")
        new = PublisherKey(
            publisher=rotation.publisher,
            key_id=rotation.new_key_id,
            public_key=rotation.new_public_key,
            source=KeySource.ALLOWLISTED if old.source is KeySource.ALLOWLISTED else KeySource.ROTATED,
            replaces=old.key_id,
            added_ms=self._tx.now_ms,
            added_by=actor,
        )
        self._put(new)
        _record(self._tx, "skill.key_rotated", new, actor)
        return new

    def remove(self, publisher: str, key_id: str, *, actor: str) -> PublisherKey:
        """Take a key off the list. What it signed before stays, and a revoked key stays revoked."""
        key = next((key for key in self.keys(publisher) if key.key_id == key_id), None)
        broken = None if key is not None else self._unreadable_shown_as(publisher, key_id)
        if broken is not None:
            self._tx.execute(f"DELETE FROM skill_keys WHERE {_OF_PLACE}", broken.place)  # noqa: S608
            key = PublisherKey(
                publisher=publisher, key_id=key_id, public_key=b"", source=KeySource.FIRST_USE, added_ms=self._tx.now_ms
            )
            if broken.place == (publisher.encode(), key_id.encode()):
                # In the place of what cannot be read: that the publisher was met stays known.
                self._put(key)
        if key is None or key.state in (KeyState.REMOVED, KeyState.REVOKED):
            how = "" if key is None else f" on the list: it was {key.state.value}"
            raise UnknownPublisherKey(f"{publisher[:80]} has no key {key_id[:80]}{how}")
        self._end(key, KeyState.REMOVED, "")
        self._forget_oldest(publisher)
        _record(self._tx, "skill.publisher_removed", key, actor)
        return msgspec.structs.replace(key, state=KeyState.REMOVED, ended_ms=self._tx.now_ms, reason="")

    def _unreadable_shown_as(self, publisher: str, key_id: str) -> UnreadableKey | None:
        """Find a row by its printed names, also if they are not text."""
        found = map(_read, self._tx.execute(f"SELECT {_COLUMNS} FROM skill_keys"))  # noqa: S608
        rows = (row for row in found if isinstance(row, UnreadableKey))
        return next((row for row in rows if (row.publisher, row.key_id) == (publisher, key_id)), None)

    def revoke(self, key_id: str, reason: str, *, actor: str) -> None:
        """Revoke a key for good and for every publisher, also one that is not listed yet."""
        self._tx.execute(
            "INSERT INTO skill_revoked_keys VALUES (?, ?, ?, ?) ON CONFLICT (key_id) DO NOTHING",
            (key_id, self._tx.now_ms, actor, reason),
        )
        if self._tx.changed() == 0:
            return
        rows = self._tx.execute(
            f"SELECT {_COLUMNS} FROM skill_keys WHERE key_id = ? ORDER BY publisher",  # noqa: S608
            (key_id,),
        )
        found = [_read(row) for row in rows]
        for key in found:
            if isinstance(key, PublisherKey):
                self._end(key, KeyState.REVOKED, reason)
        publishers = [key.publisher for key in found]
        payload = {"key_id": key_id, "publishers": publishers, "reason": reason}
        self._tx.append(NewEvent(kind="skill.key_revoked", actor=actor, payload=payload))

    def _forget_oldest(self, publisher: str) -> None:
        """Keep the newest removed keys for people to see. One would show that the publisher was met."""
        self._tx.execute(
            "DELETE FROM skill_keys WHERE publisher = :publisher AND state = 'removed' AND key_id NOT IN (SELECT key_id"
            " FROM skill_keys WHERE publisher = :publisher AND state = 'removed'"
            " ORDER BY ended_ms DESC, key_id LIMIT :most)",
            {"publisher": publisher, "most": MAX_KEYS_PER_PUBLISHER},
        )

    def _put(self, key: PublisherKey) -> None:
        self._tx.execute(
            "INSERT OR REPLACE INTO skill_keys VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                key.publisher,
                key.key_id,
                key.public_key,
                key.source.value,
                key.state.value,
                key.replaces,
                key.added_ms,
                key.added_by,
                key.ended_ms,
                key.reason,
            ),
        )

    def _end(self, key: PublisherKey, state: KeyState, reason: str) -> None:
        self._tx.execute(
            "UPDATE skill_keys SET state = ?, ended_ms = ?, reason = ? WHERE publisher = ? AND key_id = ?",
            (state.value, self._tx.now_ms, reason, key.publisher, key.key_id),
        )


def _record(tx: Transaction, kind: str, key: PublisherKey, actor: str) -> None:
    payload = {
        "publisher": key.publisher,
        "key_id": key.key_id,
        "source": key.source.value,
        "replaces": key.replaces,
    }
    tx.append(NewEvent(kind=kind, actor=actor, payload=payload))


def list_keys(store: Store) -> list[PublisherKey]:
    """List the keys. Rows that cannot be read are omitted and logged; ``list_all_unreadable`` has them."""
    for key in list_all_unreadable(store):
        _LOG.warning("a publisher's key is left out of the list: %s", key.refusal().message)
    return [key for key in _all(store) if isinstance(key, PublisherKey)]


def list_all_unreadable(store: Store) -> list[UnreadableKey]:
    """List all rows that cannot be read, each with its cause."""
    return _with_causes((key for key in _all(store) if isinstance(key, UnreadableKey)), store.read)


def list_unreadable(store: Store) -> list[UnreadableKey]:
    """List the rows that cannot be read and are not marked yet."""
    return [key for key in _all(store) if isinstance(key, UnreadableKey) and key.state != _UNREADABLE]


def list_revoked(store: Store) -> list[dict[str, Any]]:
    rows = store.read("SELECT key_id, revoked_ms, revoked_by, reason FROM skill_revoked_keys ORDER BY revoked_ms")
    return [dict(zip(("key_id", "revoked_ms", "revoked_by", "reason"), row, strict=True)) for row in rows]


def _all(store: Store) -> list[PublisherKey | UnreadableKey]:
    rows = store.read(
        f"SELECT {_COLUMNS} FROM skill_keys ORDER BY publisher, added_ms, key_id"  # noqa: S608
    )
    return [_read(row) for row in rows]


def _with_causes(rows: Iterable[UnreadableKey], read: Callable[..., list[tuple[Any, ...]]]) -> list[UnreadableKey]:
    """Add the causes of rows that were marked before. The journal has them from the time of the mark."""
    found = list(rows)
    if not any(row.state == _UNREADABLE for row in found):
        return found
    causes: dict[tuple[Any, Any], str] = {}
    for (payload,) in read(_FINDINGS):
        fields = read_payload(payload)
        # The newest comes first. Records from before there was a field for the cause have it in their reason.
        cause = str(fields.get("why") or fields.get("reason"))
        causes.setdefault((fields.get("publisher"), fields.get("key_id")), cause)
    return [
        row
        if row.state != _UNREADABLE
        else msgspec.structs.replace(row, why=causes.get((row.publisher, row.key_id), _CAUSE_UNKNOWN))
        for row in found
    ]


def _read(row: tuple[Any, ...]) -> PublisherKey | UnreadableKey:
    raw, others = row[: len(_TEXTS)], dict(zip(_OTHERS, row[len(_TEXTS) :], strict=True))
    try:
        texts = dict(zip(_TEXTS, (text.decode() for text in raw), strict=True))
        source, state = KeySource(texts.pop("source")), KeyState(texts.pop("state"))
        for instant_ms in (others["added_ms"], others["ended_ms"] or 0):
            rfc3339(instant_ms)
    except (ValueError, OverflowError, OSError) as error:
        shown = dict(zip(_TEXTS, (text.decode(errors="backslashreplace") for text in raw), strict=True))
        return UnreadableKey(
            publisher=shown["publisher"],
            key_id=shown["key_id"],
            state=shown["state"],
            place=(raw[0], raw[1]),
            why=str(error)[:_MAX_WHY_CHARS],
        )
    return PublisherKey(source=source, state=state, **texts, **others)
