"""A vault inside one transaction, its index verified: what every operation reads through and changes through."""

from collections.abc import Mapping

import msgspec

from palyra.store.event import NewEvent
from palyra.store.port import Transaction
from palyra.vault.envelope import Place, Sealer
from palyra.vault.index import SecretHead, VaultState, bucket_digest, bucket_of, require_head
from palyra.vault.key_source import KeyEncryptionKey, KeyRecord, VaultTampered
from palyra.vault.reference import SecretRef
from palyra.vault.tables import LIVE, VaultTables


class KeyNeeded(Exception):
    """The work needs a key that this process does not hold yet. It is undone, the key loaded, the work done again."""

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
        """The secret's entry. That there is none is verified as well."""
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
        """Records the event and, with the new head in its bucket, ties the state to it."""
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
    """None where there is no vault and never was one. ``index_keys`` remembers the index key between transactions."""
    tables = VaultTables(tx)
    stored, newest = tables.state(), tables.newest_change()
    if stored is None:
        if newest is not None:
            raise VaultTampered(f"the journal's entry {newest} tells of a vault, and its tables are empty")
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
