"""Tables of the vault, and the vault inside one transaction with its index verified.

``VaultTables`` needs no key: rows that it reads must still be verified, and values that it writes are sealed. A change
is made in one transaction that first verifies its base, so several processes may share the store.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from palyra.store.event import NewEvent
from palyra.store.port import Store, Transaction
from palyra.vault.envelope import (
    Place,
    SealedVersion,
    Sealer,
    SecretHead,
    VaultState,
    bucket_digest,
    bucket_of,
    require_head,
)
from palyra.vault.key_source import KeyEncryptionKey, KeyRecord, VaultTampered
from palyra.vault.limits import MAX_SECRETS
from palyra.vault.reference import SecretInfo, SecretRef, SecretScope

# Journal entries of changes; the vault's state holds the number of the last one.
_KINDS = "('vault.created', 'vault.secret_put', 'vault.secret_deleted', 'vault.rotation_started', 'vault.rotated')"
# The condition of the index, which a query must repeat exactly. SQLite makes a table of the list for every statement
# that inserts an event of the vault; the range keeps it from doing so for others.
IS_CHANGE = f"kind >= 'vault.' AND kind < 'vault/' AND kind IN {_KINDS}"

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS vault_state (
        one INTEGER PRIMARY KEY CHECK (one = 1), vault_id TEXT NOT NULL, revision INTEGER NOT NULL,
        seq INTEGER NOT NULL, live INTEGER NOT NULL, active_key TEXT NOT NULL, previous_key TEXT NOT NULL,
        buckets BLOB NOT NULL, tag BLOB NOT NULL) STRICT""",
    """CREATE TABLE IF NOT EXISTS vault_keys (
        key_id TEXT PRIMARY KEY, source TEXT NOT NULL, parameters TEXT NOT NULL, state TEXT NOT NULL,
        index_key BLOB NOT NULL, created_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS vault_secrets (
        scope TEXT NOT NULL, key TEXT NOT NULL, bucket INTEGER NOT NULL, current INTEGER NOT NULL,
        oldest INTEGER NOT NULL, live INTEGER NOT NULL, created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL,
        updated_by TEXT NOT NULL, tag BLOB NOT NULL, PRIMARY KEY (scope, key)) STRICT, WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS vault_secrets_by_bucket ON vault_secrets (bucket, scope, key, tag)",
    """CREATE TABLE IF NOT EXISTS vault_versions (
        scope TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, key_id TEXT NOT NULL, wrapped BLOB NOT NULL,
        sealed BLOB NOT NULL, PRIMARY KEY (scope, key, version)) STRICT""",
    "CREATE INDEX IF NOT EXISTS vault_versions_by_key ON vault_versions (key_id, scope, key, version)",
    # The index by the list alone, as earlier versions made it.
    "DROP INDEX IF EXISTS vault_changes",
    f"CREATE INDEX IF NOT EXISTS changes_of_vault ON events (seq) WHERE {IS_CHANGE}",
)


_HEAD: Final = "scope, key, current, oldest, live, created_ms, updated_ms, updated_by"
LIVE: Final = "live"
RETIRED: Final = "retired"
FORGOTTEN: Final = "forgotten"


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    record: KeyRecord
    state: str
    index_key: bytes


class VaultTables:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def state(self) -> tuple[VaultState, bytes] | None:
        rows = self._tx.execute(
            "SELECT vault_id, revision, seq, live, active_key, previous_key, buckets, tag FROM vault_state"
        )
        if not rows:
            return None
        *fields, tag = rows[0]
        return VaultState(**dict(zip(VaultState.__struct_fields__, fields, strict=True))), tag

    def newest_change(self) -> int | None:
        """Return the journal entry of the last change, without the vault's own tables."""
        newest: int | None = self._tx.execute(f"SELECT MAX(seq) FROM events WHERE {IS_CHANGE}")[0][0]  # noqa: S608
        return newest

    def put_state(self, state: VaultState, tag: bytes) -> None:
        self._tx.execute(
            "INSERT INTO vault_state VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (one) DO UPDATE SET"
            " revision = excluded.revision, seq = excluded.seq, live = excluded.live, active_key = excluded.active_key,"
            " previous_key = excluded.previous_key, buckets = excluded.buckets, tag = excluded.tag",
            (*msgspec.structs.astuple(state), tag),
        )

    def key(self, key_id: str) -> StoredKey | None:
        rows = self._tx.execute(
            "SELECT key_id, source, parameters, state, index_key FROM vault_keys WHERE key_id = ?", (key_id,)
        )
        return _key(rows[0]) if rows else None

    def retired_keys(self) -> list[StoredKey]:
        """List keys that seal nothing any more, but that their sources may still hold."""
        rows = self._tx.execute(
            "SELECT key_id, source, parameters, state, index_key FROM vault_keys WHERE state = ?", (RETIRED,)
        )
        return [_key(row) for row in rows]

    def add_key(self, record: KeyRecord, index_key: bytes) -> None:
        self._tx.execute(
            "INSERT INTO vault_keys VALUES (?, ?, ?, ?, ?, ?)",
            (
                record.key_id,
                record.source,
                msgspec.json.encode(record.parameters).decode(),
                LIVE,
                index_key,
                self._tx.now_ms,
            ),
        )

    def retire_key(self, key_id: str) -> None:
        self._tx.execute("UPDATE vault_keys SET state = ?, index_key = x'' WHERE key_id = ?", (RETIRED, key_id))

    def mark_forgotten(self, key_id: str) -> None:
        self._tx.execute("UPDATE vault_keys SET state = ? WHERE key_id = ? AND state = ?", (FORGOTTEN, key_id, RETIRED))

    def tags(self, bucket: int) -> list[bytes]:
        rows = self._tx.execute("SELECT tag FROM vault_secrets WHERE bucket = ? ORDER BY scope, key", (bucket,))
        return [row[0] for row in rows]

    def head(self, ref: SecretRef, bucket: int) -> tuple[SecretHead, bytes] | None:
        rows = self._tx.execute(
            f"SELECT {_HEAD}, tag FROM vault_secrets WHERE scope = ? AND key = ? AND bucket = ?",  # noqa: S608
            (str(ref.scope), ref.key, bucket),
        )
        if not rows:
            return None
        _, _, current, oldest, live, created_ms, updated_ms, updated_by, tag = rows[0]
        head = SecretHead(
            ref=ref,
            current=current,
            oldest=oldest,
            live=live == 1,
            created_ms=created_ms,
            updated_ms=updated_ms,
            updated_by=updated_by,
        )
        return head, tag

    def put_head(self, head: SecretHead, bucket: int, tag: bytes) -> None:
        self._tx.execute(
            "INSERT INTO vault_secrets VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, key) DO UPDATE SET"
            " bucket = excluded.bucket, current = excluded.current, oldest = excluded.oldest, live = excluded.live,"
            " updated_ms = excluded.updated_ms, updated_by = excluded.updated_by, tag = excluded.tag,"
            " created_ms = excluded.created_ms",
            (str(head.ref.scope), head.ref.key, bucket, *msgspec.structs.astuple(head)[1:], tag),
        )

    def version(self, ref: SecretRef, version: int) -> SealedVersion | None:
        rows = self._tx.execute(
            "SELECT key_id, wrapped, sealed FROM vault_versions WHERE scope = ? AND key = ? AND version = ?",
            (str(ref.scope), ref.key, version),
        )
        return SealedVersion(key_id=rows[0][0], wrapped=rows[0][1], sealed=rows[0][2]) if rows else None

    def put_version(self, ref: SecretRef, version: int, sealed: SealedVersion) -> None:
        self._tx.execute(
            "INSERT OR REPLACE INTO vault_versions VALUES (?, ?, ?, ?, ?, ?)",
            (str(ref.scope), ref.key, version, sealed.key_id, sealed.wrapped, sealed.sealed),
        )

    def destroy_versions(self, ref: SecretRef, before: int) -> None:
        """Delete versions below ``before``. Overwrite their wrapped data keys first."""
        where = "WHERE scope = ? AND key = ? AND version < ?"
        params = (str(ref.scope), ref.key, before)
        self._tx.execute(f"UPDATE vault_versions SET wrapped = zeroblob(length(wrapped)) {where}", params)  # noqa: S608
        self._tx.execute(f"DELETE FROM vault_versions {where}", params)  # noqa: S608

    def versions_under(self, key_id: str, after: tuple[str, str, int], limit: int) -> list[tuple[Any, ...]]:
        """Read rows of scope, key, version and wrapped data key, without values."""
        return self._tx.execute(
            "SELECT scope, key, version, wrapped FROM vault_versions"
            " WHERE key_id = ? AND (scope, key, version) > (?, ?, ?) ORDER BY scope, key, version LIMIT ?",
            (key_id, *after, limit),
        )

    def rewrap(self, ref: SecretRef, version: int, *, old_key_id: str, new_key_id: str, wrapped: bytes) -> int:
        """Return how many rows it changed: 0 if another process did it first."""
        self._tx.execute(
            "UPDATE vault_versions SET key_id = ?, wrapped = ?"
            " WHERE scope = ? AND key = ? AND version = ? AND key_id = ?",
            (new_key_id, wrapped, str(ref.scope), ref.key, version, old_key_id),
        )
        return self._tx.changed()

    def count_under(self, key_id: str) -> int:
        count: int = self._tx.execute("SELECT COUNT(*) FROM vault_versions WHERE key_id = ?", (key_id,))[0][0]
        return count


def list_secrets(
    store: Store, scope: SecretScope | None, *, after: SecretRef | None = None, limit: int = MAX_SECRETS
) -> list[SecretInfo]:
    """List names and versions in the order of names. This needs no key, so the rows are not verified."""
    start = ("", "") if after is None else (str(after.scope), after.key)
    rows = store.read(
        f"SELECT {_HEAD} FROM vault_secrets WHERE live = 1 AND (:scope IS NULL OR scope = :scope)"  # noqa: S608
        " AND (scope, key) > (:after_scope, :after_key) ORDER BY scope, key LIMIT :most",
        {
            "scope": None if scope is None else str(scope),
            "after_scope": start[0],
            "after_key": start[1],
            "most": limit,
        },
    )
    return [
        SecretInfo(
            ref=SecretRef(SecretScope.parse(row[0]), row[1]),
            version=row[2],
            oldest_version=row[3],
            created_ms=row[5],
            updated_ms=row[6],
            updated_by=row[7],
        )
        for row in rows
    ]


def _key(row: tuple[Any, ...]) -> StoredKey:
    key_id, source, raw, state, index_key = row
    try:
        parameters = msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise VaultTampered(f"the record of the key {key_id} was changed", key_id=key_id) from None
    return StoredKey(
        record=KeyRecord(key_id=key_id, source=source, parameters=parameters),
        state=state,
        index_key=index_key,
    )


class KeyNeeded(Exception):
    """The work needs a key that this process does not hold. It is undone, the key loaded, the work repeated."""

    def __init__(self, record: KeyRecord) -> None:
        super().__init__(record.key_id)
        self.record = record


class OpenedVault:
    def __init__(
        self,
        tx: Transaction,
        tables: VaultTables,
        state: VaultState,
        index_key: bytes,
        keys: Mapping[str, KeyEncryptionKey],
    ) -> None:
        self._tx = tx
        self.tables = tables
        self.state = state
        self.index_key = index_key
        self._keys = keys

    def key(self, key_id: str) -> KeyEncryptionKey:
        held = self._keys.get(key_id)
        if held is not None:
            return held
        stored = self.tables.key(key_id)
        if stored is None:
            raise VaultTampered(f"the record of the key {key_id} is gone", key_id=key_id)
        raise KeyNeeded(stored.record)

    def active_key(self) -> KeyEncryptionKey:
        return self.key(self.state.active_key)

    def head(self, ref: SecretRef) -> SecretHead | None:
        """Return the secret's entry. Its absence is verified as well."""
        bucket = bucket_of(ref)
        self.state.require_bucket(self.index_key, bucket, self.tables.tags(bucket))
        found = self.tables.head(ref, bucket)
        if found is None:
            return None
        head, tag = found
        require_head(head, self.state.vault_id, self.index_key, tag)
        return head

    def value(self, sealer: Sealer, ref: SecretRef, version: int) -> bytes:
        stored = self.tables.version(ref, version)
        if stored is None:
            raise VaultTampered(f"version {version} of {ref} is gone", version=version)
        if stored.key_id not in self.state.keys_in_use():
            raise VaultTampered(
                f"version {version} of {ref} is sealed with a retired key: it comes from an older copy",
                version=version,
                key_id=stored.key_id,
            )
        place = Place(vault_id=self.state.vault_id, ref=ref, version=version)
        return sealer.open(self.key(stored.key_id), place, stored)

    def change(self, event: NewEvent, head: SecretHead | None = None, *, live_change: int = 0) -> None:
        """Record the event, store the new head in its bucket, and bind the state to both."""
        state = self.state
        buckets = state.buckets
        if head is not None:
            bucket = bucket_of(head.ref)
            self.tables.put_head(head, bucket, head.tag(state.vault_id, self.index_key))
            digest = bucket_digest(self.index_key, state.vault_id, bucket, self.tables.tags(bucket))
            buckets = state.with_bucket(bucket, digest)
        seq = self._tx.append(event).seq
        self.state = msgspec.structs.replace(
            state, revision=state.revision + 1, seq=seq, live=state.live + live_change, buckets=buckets
        )
        self.tables.put_state(self.state, self.state.tag(self.index_key))

    def change_keys(self, event: NewEvent, *, active: str, previous: str) -> None:
        self.state = msgspec.structs.replace(self.state, active_key=active, previous_key=previous)
        self.change(event)


def open_vault(
    tx: Transaction, sealer: Sealer, keys: Mapping[str, KeyEncryptionKey], index_keys: dict[str, bytes]
) -> OpenedVault | None:
    """Open the vault; None if none was ever made. ``index_keys`` caches the index key between transactions."""
    tables = VaultTables(tx)
    stored, newest = tables.state(), tables.newest_change()
    if stored is None:
        if newest is not None:
            raise VaultTampered(f"the journal's entry {newest} is about a vault, and its tables are empty")
        return None
    state, tag = stored
    index_key = index_keys.get(state.vault_id)
    if index_key is None:
        key = tables.key(state.active_key)
        if key is None or key.state != LIVE:
            raise VaultTampered("the record of the active key is gone", key_id=state.active_key)
        held = keys.get(state.active_key)
        if held is None:
            raise KeyNeeded(key.record)
        index_key = sealer.unwrap_index_key(held, state.vault_id, key.index_key)
        index_keys[state.vault_id] = index_key
    state.require(index_key, tag, newest)
    return OpenedVault(tx, tables, state, index_key, keys)
