"""The registry's tables. Versions are moved by compare-and-set on their state; each move is in the journal with it."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from palyra.journal.search import RARE
from palyra.skills.limits import MAX_HISTORY_SHOWN, MAX_SKILLS
from palyra.skills.package.configuration import ConfigurationRefused
from palyra.skills.registry.lifecycle import KIND_OF, KINDS, SkillEvent, SkillState, UseOnRecord, after
from palyra.skills.registry.records import (
    ChangedMeanwhile,
    HistoryEntry,
    NotRunnable,
    RecordChanged,
    SkillVersion,
    StoredValues,
    UnknownSkill,
    UnreadableVersion,
)
from palyra.skills.trust.publisher_keys import KeyRevoked, SkillOwner
from palyra.store.event import NewEvent
from palyra.store.port import Store, Transaction

Query = Callable[[str, tuple[Any, ...]], Sequence[tuple[Any, ...]]]
# The events after which a version runs.
_PUT_IN_USE: Final = (SkillEvent.APPROVE, SkillEvent.ENABLE, SkillEvent.ROLL_BACK)
_SELECT: Final = "SELECT skill_id, digest, version, state, key_id, record FROM skill_versions"
_MAX_WHY_CHARS: Final = 200
# What decoding raises: malformed, of another shape, not UTF-8, nested without end.
_UNREADABLE: Final = (ValueError, RecursionError)
_decode = msgspec.json.Decoder(SkillVersion)
_LOG = logging.getLogger("palyra.skills")
# Row and journal in one statement: between two of them another process could move the version twice.
_ROW_AND_JOURNAL: Final = (
    f"SELECT seq, kind, payload FROM events WHERE kind IN ({', '.join('?' * len(KINDS))}) AND {RARE} AND seq > ?"  # noqa: S608
    " UNION ALL"
    " SELECT decided_seq, '', x'' FROM skill_versions WHERE skill_id = ? AND digest = ? AND state = 'approved'"
)


class SkillTables:
    """The registry inside one transaction."""

    def __init__(self, tx: Transaction) -> None:
        self.tx = tx

    def version(self, skill_id: str, digest: str) -> SkillVersion | None:
        rows = self.tx.execute(f"{_SELECT} WHERE skill_id = ? AND digest = ?", (skill_id, digest))
        return _require_readable(rows[0]) if rows else None

    def versions(self, skill_id: str) -> list[SkillVersion]:
        rows = self.tx.execute(f"{_SELECT} WHERE skill_id = ? ORDER BY digest", (skill_id,))
        return [_require_readable(row) for row in rows]

    def unreadable(self, skill_id: str) -> list[UnreadableVersion]:
        rows = self.tx.execute(f"{_SELECT} WHERE skill_id = ? ORDER BY digest", (skill_id,))
        return [found for found in map(_read, rows) if isinstance(found, UnreadableVersion)]

    def list_signed_with(self, key_id: str) -> list[SkillVersion]:
        """List the versions without the unreadable: they do not run, and must not block a revocation."""
        rows = self.tx.execute(f"{_SELECT} WHERE key_id = ? ORDER BY skill_id", (key_id,))
        return [found for found in map(_read, rows) if isinstance(found, SkillVersion)]

    def count(self) -> int:
        count: int = self.tx.execute("SELECT COUNT(DISTINCT skill_id) FROM skill_versions")[0][0]
        return count

    def ingest(self, new: SkillVersion, *, actor: str) -> SkillVersion:
        """Insert a row, or begin that of a version again that failed or was removed."""
        now = self.tx.now_ms
        new = msgspec.structs.replace(
            new, state=SkillState.INGESTED, ingested_ms=now, ingested_by=actor, updated_ms=now
        )
        before = self.version(new.skill_id, new.digest)
        if before is not None:
            again = msgspec.structs.replace(
                new, state=before.state, approved_ms=before.approved_ms, approved_by=before.approved_by
            )
            return self.move(again, SkillEvent.INGEST, actor=actor)
        self.tx.execute(
            "INSERT INTO skill_versions VALUES (?, ?, ?, ?, ?, 0, ?)",
            (new.skill_id, new.digest, new.version, new.state.value, new.key_id, msgspec.json.encode(new)),
        )
        self._record(SkillEvent.INGEST, new, actor, {})
        return new

    def move(
        self, version: SkillVersion, event: SkillEvent, *, actor: str, reason: str = "", **facts: Any
    ) -> SkillVersion:
        """Move a version and record it in the journal. Raises if the table of transitions or a rival forbids it."""
        state = after(version.state, event)
        changes: dict[str, Any] = {"state": state, "updated_ms": self.tx.now_ms, "reason": reason}
        if event is SkillEvent.APPROVE and version.approved_ms is None:
            changes |= {"approved_ms": self.tx.now_ms, "approved_by": actor}
        moved = msgspec.structs.replace(version, **changes)
        seq = self._record(event, moved, actor, facts)
        self.tx.execute(
            "UPDATE skill_versions SET state = ?, record = ?, key_id = ?,"
            " decided_seq = CASE WHEN ? THEN ? ELSE decided_seq END"
            " WHERE skill_id = ? AND digest = ? AND state = ?",
            (
                state.value,
                msgspec.json.encode(moved),
                moved.key_id,
                int(event in _PUT_IN_USE),
                seq,
                moved.skill_id,
                moved.digest,
                version.state.value,
            ),
        )
        if self.tx.changed() != 1:
            raise ChangedMeanwhile(f"{version.skill_id} {version.version} is not {version.state.value} any more")
        return moved

    def fail_unreadable(self, row: UnreadableVersion, *, actor: str) -> None:
        """Take a row out of use, unless it changed meanwhile. Its record stays for an investigation."""
        self.tx.execute(
            "UPDATE skill_versions SET state = 'failed'"
            " WHERE skill_id = ? AND digest = ? AND state = 'approved' AND record = ?",
            (row.skill_id, row.digest, row.record),
        )
        if self.tx.changed():
            refusal = row.refusal()
            self._record_unreadable(SkillEvent.FAIL, row, actor, f"{refusal.code}: {refusal.message}")

    def clear_unreadable(self, row: UnreadableVersion, *, actor: str, reason: str) -> None:
        self.tx.execute("DELETE FROM skill_versions WHERE skill_id = ? AND digest = ?", (row.skill_id, row.digest))
        self._record_unreadable(SkillEvent.REMOVE, row, actor, reason)

    def owner(self, skill_id: str) -> SkillOwner | None:
        return _find_owner(self.tx.execute, skill_id)

    def put_owner(self, owner: SkillOwner) -> None:
        self.tx.execute(
            "INSERT INTO skill_owners VALUES (?, ?, ?, ?) ON CONFLICT (skill_id) DO UPDATE SET"
            " publisher = excluded.publisher, key_id = excluded.key_id, newest_approved = excluded.newest_approved",
            (owner.skill_id, owner.publisher, owner.key_id, owner.newest_approved),
        )

    def configuration(self, skill_id: str, version: str) -> dict[str, Any] | None:
        return _find_configuration(self.tx.execute, skill_id, version)

    def put_configuration(self, version: SkillVersion, value: dict[str, Any], *, actor: str) -> None:
        self.tx.execute(
            "INSERT INTO skill_configurations VALUES (?, ?, ?) ON CONFLICT (skill_id, version) DO UPDATE SET"
            " value = excluded.value",
            (version.skill_id, version.version, msgspec.json.encode(value).decode()),
        )
        payload = {"skill_id": version.skill_id, "version": version.version, "configuration": value}
        event = self.tx.append(NewEvent(kind="skill.configured", actor=actor, payload=payload))
        self._remember(event.seq, "skill.configured", version, actor)

    def note_purged(self, last: SkillVersion, stored: StoredValues, *, actor: str) -> None:
        payload = {"skill_id": last.skill_id, "values": stored.values, "bytes": stored.bytes}
        event = self.tx.append(NewEvent(kind="skill.purged", actor=actor, payload=payload))
        self._remember(event.seq, "skill.purged", last, actor)

    def forget_configuration(self, skill_id: str, version: str) -> None:
        self.tx.execute("DELETE FROM skill_configurations WHERE skill_id = ? AND version = ?", (skill_id, version))

    def _record(self, event: SkillEvent, version: SkillVersion, actor: str, facts: dict[str, Any]) -> int:
        return self._append(event, version, actor, version.publisher, version.reason, facts)

    def _record_unreadable(self, event: SkillEvent, row: UnreadableVersion, actor: str, reason: str) -> None:
        self._append(event, row, actor, "", reason, {})

    def _append(
        self,
        event: SkillEvent,
        version: SkillVersion | UnreadableVersion,
        actor: str,
        publisher: str,
        reason: str,
        facts: dict[str, Any],
    ) -> int:
        payload = {
            "skill_id": version.skill_id,
            "version": version.version,
            "digest": version.digest,
            "publisher": publisher,
            "key_id": version.key_id,
            "reason": reason,
            **facts,
        }
        kind = KIND_OF[event]
        seq = self.tx.append(NewEvent(kind=kind, actor=actor, payload=payload)).seq
        self._remember(seq, kind, version, actor, reason)
        return seq

    def _remember(
        self, seq: int, kind: str, version: SkillVersion | UnreadableVersion, actor: str, reason: str = ""
    ) -> None:
        self.tx.execute(
            "INSERT INTO skill_history VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (seq, version.skill_id, version.version, version.digest, kind, self.tx.now_ms, actor, reason),
        )


class InstalledSkillsIndex:
    """The installed skills, their versions, and those in use: the tables, read outside a transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reading = threading.Lock()
        self._on_record = UseOnRecord()

    def revision(self) -> int:
        """Return the number of the newest entry about a skill. It grows with every change of any process."""
        newest: int = self._store.read("SELECT COALESCE(MAX(seq), 0) FROM skill_history")[0][0]
        return newest

    def skill_ids(self) -> list[str]:
        rows = self._store.read("SELECT DISTINCT skill_id FROM skill_versions ORDER BY skill_id LIMIT ?", (MAX_SKILLS,))
        return [row[0] for row in rows]

    def versions(self, skill_id: str) -> list[SkillVersion]:
        """List the versions of a skill, the newest first, by the time of installation."""
        found = [_require_readable(row) for row in self._store.read(f"{_SELECT} WHERE skill_id = ?", (skill_id,))]
        if not found:
            raise UnknownSkill(f"there is no skill {skill_id[:80]!r}")
        return sorted(found, key=lambda version: version.ingested_ms, reverse=True)

    def listed(self) -> Iterator[tuple[str, list[SkillVersion]]]:
        """List every skill with its versions. One whose record cannot be trusted is omitted and logged."""
        for skill_id in self.skill_ids():
            try:
                yield skill_id, self.versions(skill_id)
            except UnknownSkill:
                continue
            except RecordChanged as refusal:
                _LOG.warning("a skill is omitted from the list: %s", refusal.message)

    def active(self) -> list[SkillVersion]:
        return [found for found in self._in_use() if isinstance(found, SkillVersion)]

    def active_unreadable(self) -> list[UnreadableVersion]:
        """List versions that the tables call in use and that cannot be read."""
        return [found for found in self._in_use() if isinstance(found, UnreadableVersion)]

    def count_waiting(self) -> int:
        """Count the versions that a person has to review."""
        return int(self._store.read("SELECT COUNT(*) FROM skill_versions WHERE state = 'quarantined'")[0][0])

    def digests_kept(self) -> set[str]:
        rows = self._store.read(
            "SELECT digest FROM skill_versions WHERE state IN ('quarantined', 'approved', 'disabled', 'superseded')"
        )
        return {row[0] for row in rows}

    def digests_known(self) -> set[str]:
        """List the digests, also of versions that failed: their archives stay for an investigation."""
        return {row[0] for row in self._store.read("SELECT digest FROM skill_versions WHERE state <> 'removed'")}

    def require_active(self, skill_id: str, digest: str) -> None:
        """Raise unless the version with this digest is in use. One read by key is cheap enough for every call."""
        rows = self._store.read(
            "SELECT 1 FROM skill_versions WHERE skill_id = ? AND digest = ? AND state = 'approved'", (skill_id, digest)
        )
        if not rows:
            raise NotRunnable(f"{skill_id} with the digest {digest[:12]} is not in use", skill_id=skill_id)

    def require_kept(self, skill_id: str, digest: str) -> None:
        """Raise unless the version with this digest is in use, or was until another superseded it.

        A call of a superseded version that still runs may store its values.
        """
        rows = self._store.read(
            "SELECT 1 FROM skill_versions WHERE skill_id = ? AND digest = ? AND state IN ('approved', 'superseded')",
            (skill_id, digest),
        )
        if not rows:
            raise NotRunnable(f"{skill_id} with the digest {digest[:12]} was taken out of use", skill_id=skill_id)

    def require_record(self, version: SkillVersion) -> None:
        """Raise unless the journal, too, says that exactly this version was put in use last, and still is."""
        with self._reading:
            rows = self._store.read(_ROW_AND_JOURNAL, (*KINDS, self._on_record.seq, version.skill_id, version.digest))
            for seq, kind, payload in sorted(row for row in rows if row[1]):
                self._on_record.apply(seq, kind, payload)
            recorded = self._on_record.in_use(version.skill_id)
            revoked = recorded is not None and recorded.key_id in self._on_record.revoked
        decided = next((row[0] for row in rows if not row[1]), None)
        if decided is None:
            raise ChangedMeanwhile(f"{version.skill_id} {version.version} is not in use any more")
        expected = (decided, version.version, version.digest, version.key_id)
        if recorded is None or (recorded.seq, recorded.version, recorded.digest, recorded.key_id) != expected:
            raise RecordChanged(f"the journal has no record that {version.skill_id} {version.version} is in use")
        if revoked:
            raise KeyRevoked(f"{version.skill_id} {version.version} is signed with {version.key_id}, which was revoked")

    def owner(self, skill_id: str) -> SkillOwner | None:
        return _find_owner(self._store.read, skill_id)

    def configuration(self, skill_id: str, version: str) -> dict[str, Any]:
        return _find_configuration(self._store.read, skill_id, version) or {}

    def history(self, skill_id: str) -> list[HistoryEntry]:
        """List the newest entries, the newest first."""
        rows: Iterable[tuple[Any, ...]] = self._store.read(
            "SELECT seq, time_ms, kind, version, digest, actor, reason FROM skill_history WHERE skill_id = ?"
            " ORDER BY seq DESC LIMIT ?",
            (skill_id, MAX_HISTORY_SHOWN),
        )
        names = ("seq", "time_ms", "kind", "version", "digest", "actor", "reason")
        return [HistoryEntry(**dict(zip(names, row, strict=True))) for row in rows]

    def _in_use(self) -> list[SkillVersion | UnreadableVersion]:
        return [_read(row) for row in self._store.read(f"{_SELECT} WHERE state = 'approved' ORDER BY skill_id")]


def _read(row: tuple[Any, ...]) -> SkillVersion | UnreadableVersion:
    skill_id, digest, version, _state, key_id, record = row
    try:
        found = _decode.decode(record)
    except _UNREADABLE as error:
        why = str(error)[:_MAX_WHY_CHARS]
    else:
        if (found.skill_id, found.digest, found.version, found.state.value, found.key_id) == row[:-1]:
            return found
        why = "it says something else than its row"
    return UnreadableVersion(skill_id=skill_id, digest=digest, version=version, key_id=key_id, record=record, why=why)


def _require_readable(row: tuple[Any, ...]) -> SkillVersion:
    found = _read(row)
    if isinstance(found, UnreadableVersion):
        raise found.refusal()
    return found


def _find_configuration(execute: Query, skill_id: str, version: str) -> dict[str, Any] | None:
    rows = execute("SELECT value FROM skill_configurations WHERE skill_id = ? AND version = ?", (skill_id, version))
    try:
        return msgspec.json.decode(rows[0][0], type=dict[str, Any]) if rows else None
    except _UNREADABLE as error:
        raise ConfigurationRefused(f"what was set cannot be read: {str(error)[:_MAX_WHY_CHARS]}") from error


def _find_owner(execute: Query, skill_id: str) -> SkillOwner | None:
    columns = ("skill_id", "publisher", "key_id", "newest_approved")
    rows = execute(f"SELECT {', '.join(columns)} FROM skill_owners WHERE skill_id = ?", (skill_id,))  # noqa: S608
    return SkillOwner(**dict(zip(columns, rows[0], strict=True))) if rows else None
