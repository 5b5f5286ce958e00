"""The tables of the vault. In a module of their own, because every store is opened with them and few use them."""

from typing import Any, Final

import msgspec

from palyra.store.port import Store, Transaction
from palyra.vault.envelope import SealedVersion
from palyra.vault.index import SecretHead, VaultState
from palyra.vault.key_source import KeyRecord, VaultTampered
from palyra.vault.limits import MAX_SECRETS
from palyra.vault.reference import SecretInfo, SecretRef, SecretScope

# The kinds of journal entry that tell of a change; the vault's state holds the number of the last of them.
_KINDS = "('vault.created', 'vault.secret_put', 'vault.secret_deleted', 'vault.rotation_started', 'vault.rotated')"
# The condition of the index, word for word as a query has to repeat it. Other events do not get as far as the list, of
# which SQLite makes a table with every statement that inserts one that does.
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
    # The same by the list alone, as it was made before.
    "DROP INDEX IF EXISTS vault_changes",
    f"CREATE INDEX IF NOT EXISTS changes_of_vault ON events (seq) WHERE {IS_CHANGE}",
)


# The vault's tables in SQL. Nothing here knows a key: what is read has yet to be verified, what is written was
# sealed.
#
# A change is made inside one transaction that first verifies what it builds on, so several processes may share the
# store.

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
        names = ("vault_id", "revision", "seq", "live", "active_key", "previous_key", "buckets")
        return VaultState(**dict(zip(names, fields, strict=True))), tag

    def newest_change(self) -> int | None:
        """The journal entry of the last change, whatever the vault's own tables say."""
        newest: int | None = self._tx.execute(f"SELECT MAX(seq) FROM events WHERE {IS_CHANGE}")[0][0]  # noqa: S608
        return newest

    def put_state(self, state: VaultState, tag: bytes) -> None:
        self._tx.execute(
            "INSERT INTO vault_state VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (one) DO UPDATE SET"
            " revision = excluded.revision, seq = excluded.seq, live = excluded.live, active_key = excluded.active_key,"
            " previous_key = excluded.previous_key, buckets = excluded.buckets, tag = excluded.tag",
            (
                state.vault_id,
                state.revision,
                state.seq,
                state.live,
                state.active_key,
                state.previous_key,
                state.buckets,
                tag,
            ),
        )

    def key(self, key_id: str) -> StoredKey | None:
        rows = self._tx.execute(
            "SELECT key_id, source, parameters, state, index_key FROM vault_keys WHERE key_id = ?", (key_id,)
        )
        return _key(rows[0]) if rows else None

    def retired_keys(self) -> list[StoredKey]:
        """Keys that nothing is sealed with any more, and that their places may still hold."""
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
            (
                str(head.ref.scope),
                head.ref.key,
                bucket,
                head.current,
                head.oldest,
                int(head.live),
                head.created_ms,
                head.updated_ms,
                head.updated_by,
                tag,
            ),
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
        """Versions below ``before`` go, and their wrapped data keys are overwritten first, not only unlinked."""
        where = "WHERE scope = ? AND key = ? AND version < ?"
        params = (str(ref.scope), ref.key, before)
        self._tx.execute(f"UPDATE vault_versions SET wrapped = zeroblob(length(wrapped)) {where}", params)  # noqa: S608
        self._tx.execute(f"DELETE FROM vault_versions {where}", params)  # noqa: S608

    def versions_under(self, key_id: str, after: tuple[str, str, int], limit: int) -> list[tuple[Any, ...]]:
        """Rows of scope, key, version and wrapped data key, in that order; values stay where they are."""
        return self._tx.execute(
            "SELECT scope, key, version, wrapped FROM vault_versions"
            " WHERE key_id = ? AND (scope, key, version) > (?, ?, ?) ORDER BY scope, key, version LIMIT ?",
            (key_id, *after, limit),
        )

    def rewrap(self, ref: SecretRef, version: int, *, old_key_id: str, new_key_id: str, wrapped: bytes) -> int:
        """How many rows it changed: none if somebody else did it first."""
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
    """Names and versions, in the order of their names. Needs no key, and so proves nothing: use does."""
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
