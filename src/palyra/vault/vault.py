"""Vault: secrets put, used, rotated and destroyed, each change and each use on record.

Keys are loaded outside of transactions, because that may take a person or a slow derivation. Everything else happens in
one transaction of the shared store, which verifies the index before it reads or changes anything. So several processes
may work on one vault. A process that finds a key it does not hold loads it and tries again.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from palyra.errors import PalyraError
from palyra.secret import Secret
from palyra.store.event import NewEvent
from palyra.store.port import Store, Transaction
from palyra.vault.envelope import Place, RandomBytes, Sealer, SecretHead, VaultState
from palyra.vault.key_source import (
    BadValue,
    KeyEncryptionKey,
    KeyMissing,
    KeyRecord,
    KeySource,
    NoSuchSecret,
    NoSuchVersion,
    TooManySecrets,
    ValueTooLarge,
    VaultTampered,
)
from palyra.vault.limits import MAX_KEY_TURNS, MAX_SECRETS, MAX_VALUE_BYTES, MAX_VERSIONS_KEPT
from palyra.vault.reference import RotationReport, SecretInfo, SecretRef, SecretScope, UseNote, VaultStatus
from palyra.vault.rotation import Rotation
from palyra.vault.tables import KeyNeeded, OpenedVault, VaultTables, list_secrets, open_vault

T = TypeVar("T")
VAULT_ID_BYTES = 16


class _VaultNeeded(Exception):
    """No vault exists yet: its first key must be made before the work."""


class Vault:
    """The vault of one store.

    ``sources`` may have keys, ``source`` is the kind for new ones. ``learn`` gets every value that passes through, so
    that it can be kept out of records and results.
    """

    def __init__(
        self,
        *,
        store: Store,
        sealer: Sealer,
        random: RandomBytes,
        sources: Mapping[str, KeySource],
        source: str,
        learn: Callable[[Secret], None],
    ) -> None:
        self._store = store
        self._sealer = sealer
        self._random = random
        self._sources = sources
        self._source = source
        self._learn = learn
        self._keys: dict[str, KeyEncryptionKey] = {}
        self._index_keys: dict[str, bytes] = {}
        self._loading = asyncio.Lock()

    async def put(self, ref: SecretRef, value: Secret, *, actor: str) -> SecretInfo:
        """Store a new version and put it in force. Earlier ones are kept up to a limit."""
        raw = _encode(value)
        self._learn(value)

        def work(tx: Transaction) -> SecretInfo:
            vault = self._open(tx)
            if vault is None:
                raise _VaultNeeded
            before = vault.head(ref)
            if (before is None or not before.live) and vault.state.live >= MAX_SECRETS:
                raise TooManySecrets(f"the vault already holds {vault.state.live} secrets")
            version = 1 if before is None else before.current + 1
            oldest = (
                version if before is None or not before.live else max(before.oldest, version - MAX_VERSIONS_KEPT + 1)
            )
            place = Place(vault_id=vault.state.vault_id, ref=ref, version=version)
            vault.tables.put_version(ref, version, self._sealer.seal(vault.active_key(), place, raw))
            vault.tables.destroy_versions(ref, oldest)
            head = SecretHead(
                ref=ref,
                current=version,
                oldest=oldest,
                live=True,
                created_ms=before.created_ms if before is not None and before.live else tx.now_ms,
                updated_ms=tx.now_ms,
                updated_by=actor,
            )
            event = NewEvent(
                kind="vault.secret_put",
                actor=actor,
                payload={"ref": str(ref), "version": version, "key_id": vault.state.active_key},
            )
            vault.change(event, head, live_change=0 if before is not None and before.live else 1)
            return _info(head)

        return await self._run(work, ref, actor)

    async def reveal(self, ref: SecretRef, *, version: int | None = None, note: UseNote) -> Secret:
        """Record the use and return the value. The caller has asked policy before: see ``DecidedSecrets``."""

        def work(tx: Transaction) -> bytes:
            vault = self._open(tx)
            head = None if vault is None else vault.head(ref)
            if vault is None or head is None or not head.live:
                raise NoSuchSecret(f"there is no secret {ref}", ref=str(ref))
            wanted = head.current if version is None else version
            if not head.oldest <= wanted <= head.current:
                raise NoSuchVersion(f"version {wanted} of {ref} is not kept", ref=str(ref), version=wanted)
            raw = vault.value(self._sealer, ref, wanted)
            tx.append(_make_use_event(ref, wanted, note))
            return raw

        raw = await self._run(work, ref, note.actor)
        secret = Secret(raw.decode("utf-8"))
        self._learn(secret)
        return secret

    def list(
        self, scope: SecretScope | None = None, *, after: SecretRef | None = None, limit: int = MAX_SECRETS
    ) -> list[SecretInfo]:
        """List names and versions, never values. Needs no key."""
        return list_secrets(self._store, scope, after=after, limit=limit)

    async def delete(self, ref: SecretRef, *, actor: str) -> SecretInfo:
        def work(tx: Transaction) -> SecretInfo:
            vault = self._open(tx)
            before = None if vault is None else vault.head(ref)
            if vault is None or before is None or not before.live:
                raise NoSuchSecret(f"there is no secret {ref}", ref=str(ref))
            vault.tables.destroy_versions(ref, before.current + 1)
            head = msgspec.structs.replace(
                before, live=False, oldest=before.current + 1, updated_ms=tx.now_ms, updated_by=actor
            )
            event = NewEvent(
                kind="vault.secret_deleted", actor=actor, payload={"ref": str(ref), "version": before.current}
            )
            vault.change(event, head, live_change=-1)
            return _info(before)

        return await self._run(work, ref, actor)

    async def rotate(self, new_key_source: KeySource | str | None = None, *, actor: str) -> RotationReport:
        """Put every data key under a new key and retire the old one. Resume a rotation that was cut off.

        Secrets can be used and put meanwhile. If some records do not open, the others are rotated, the old key stays,
        and ``VaultTampered`` names them: put or delete those secrets, then rotate again.
        """
        if new_key_source is None or isinstance(new_key_source, str):
            new_key_source = self._place(new_key_source or self._source)
        rotation = Rotation(run=self._run, open_vault=self._open, sealer=self._sealer, hold=self._hold, actor=actor)
        report = await rotation.rotate(new_key_source)
        await self._forget_retired()
        return report

    async def status(self) -> VaultStatus:
        """Return the status, which needs no key."""

        def work(tx: Transaction) -> VaultStatus:
            tables = VaultTables(tx)
            stored = tables.state()
            if stored is None:
                return VaultStatus(secrets=0)
            state = stored[0]
            key = tables.key(state.active_key)
            return VaultStatus(
                secrets=state.live,
                key_id=state.active_key,
                key_source="" if key is None else key.record.source,
                rotating_from=state.previous_key,
                waiting=tables.count_under(state.previous_key) if state.previous_key else 0,
            )

        return await self._store.transact(work)

    def _hold(self, key: KeyEncryptionKey) -> None:
        self._keys[key.key_id] = key

    def _open(self, tx: Transaction) -> OpenedVault | None:
        return open_vault(tx, self._sealer, self._keys, self._index_keys)

    async def _run(self, work: Callable[[Transaction], T], ref: SecretRef | None, actor: str) -> T:
        """Do the work, after loading the keys it needs. Record tampering that it finds."""
        for _ in range(MAX_KEY_TURNS):
            try:
                return await self._store.transact(work)
            except KeyNeeded as needed:
                await self._load(needed.record)
            except _VaultNeeded:
                await self._create(actor)
            except VaultTampered as found:
                await self._record_tampering(found, ref, actor)
                raise
        raise KeyMissing("the vault's key changes faster than it can be loaded")

    async def _load(self, record: KeyRecord) -> None:
        async with self._loading:
            if record.key_id in self._keys:
                return
            key = await asyncio.to_thread(self._place(record.source).load, record)
            if key.key_id != record.key_id:
                raise KeyMissing(f"another key than {record.key_id} was found", key_id=record.key_id)
            self._hold(key)

    def _place(self, kind: str) -> KeySource:
        source = self._sources.get(kind)
        if source is None:
            raise KeyMissing(f"the key is kept in a place this process does not know: {kind[:32]!r}")
        return source

    async def _create(self, actor: str) -> None:
        record, key = await asyncio.to_thread(self._place(self._source).create, ())
        vault_id, index_key = self._random(VAULT_ID_BYTES).hex(), self._sealer.new_index_key()

        def work(tx: Transaction) -> VaultState | None:
            tables = VaultTables(tx)
            if tables.state() is not None:
                return None
            tables.add_key(record, self._sealer.wrap_index_key(key, vault_id, index_key))
            event = NewEvent(
                kind="vault.created",
                actor=actor,
                payload={"vault_id": vault_id, "key_id": key.key_id, "key_source": record.source},
            )
            state = VaultState.first(vault_id, key.key_id, index_key)
            OpenedVault(tx, tables, state, index_key, self._keys).change(event)
            return state

        if await self._store.transact(work) is None:
            # Another process made the vault first, with a key of its own.
            await asyncio.to_thread(self._place(record.source).forget, record)
        else:
            self._hold(key)

    async def _forget_retired(self) -> None:
        """Destroy retired keys at their sources; one out of reach is tried again after the next rotation."""
        for stored in await self._store.transact(lambda tx: VaultTables(tx).retired_keys()):
            key_id = stored.record.key_id
            with contextlib.suppress(PalyraError):
                await asyncio.to_thread(self._place(stored.record.source).forget, stored.record)
                await self._store.transact(lambda tx, gone=key_id: VaultTables(tx).mark_forgotten(gone))  # type: ignore[misc]
                self._keys.pop(key_id, None)

    async def _record_tampering(self, found: VaultTampered, ref: SecretRef | None, actor: str) -> None:
        payload = {"ref": "" if ref is None else str(ref), "found": found.message, **found.details}
        await self._store.transact(
            lambda tx: tx.append(NewEvent(kind="vault.tamper_found", actor=actor, payload=payload))
        )


def _encode(value: Secret) -> bytes:
    try:
        raw = value.reveal().encode("utf-8")
    except UnicodeEncodeError:
        # The error's text would show a part of the value.
        raise BadValue("the value holds half a surrogate pair, which is not text") from None
    if not raw:
        raise BadValue("the value is empty")
    if len(raw) > MAX_VALUE_BYTES:
        raise ValueTooLarge(f"the value has {len(raw)} bytes", limit=MAX_VALUE_BYTES)
    return raw


def _info(head: SecretHead) -> SecretInfo:
    return SecretInfo(
        ref=head.ref,
        version=head.current,
        oldest_version=head.oldest,
        created_ms=head.created_ms,
        updated_ms=head.updated_ms,
        updated_by=head.updated_by,
    )


def _make_use_event(ref: SecretRef, version: int, note: UseNote) -> NewEvent:
    return NewEvent(
        kind="vault.secret_used",
        actor=note.actor,
        principal=note.principal,
        run=note.run,
        call=note.call,
        payload={
            "ref": str(ref),
            "version": version,
            "purpose": note.purpose,
            "channel": note.channel,
            "tool": note.tool,
            "skill": note.skill,
            "host": note.host,
            "policies": list(note.policies),
            "bundle_digest": note.bundle_digest,
        },
    )
