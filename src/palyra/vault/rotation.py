"""Rotation: re-wrap every data key under a new key, a batch at a time.

    begin    the new key exists at its source, then one transaction makes it active and the old one the previous one
    batches  each re-wraps some data keys; both keys still open their records, so nothing stops
    end      nothing is left under the previous key: it is retired, then destroyed at its source

After a crash between any two steps the next call goes on. Two processes that rotate at once do the same rotation
together.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, Protocol, TypeVar

import msgspec

from palyra.errors import PalyraError
from palyra.store.event import NewEvent
from palyra.store.port import Transaction
from palyra.vault.envelope import Place, Sealer
from palyra.vault.key_source import KeyEncryptionKey, KeySource, NoSuchSecret, VaultTampered
from palyra.vault.limits import REWRAP_BATCH
from palyra.vault.reference import RotationReport, SecretRef, SecretScope
from palyra.vault.tables import OpenedVault

T = TypeVar("T")
Cursor = tuple[str, str, int]
_START: Cursor = ("", "", 0)
# A report names this many damaged records.
MAX_NAMED = 16


class Run(Protocol):
    def __call__(
        self, work: Callable[[Transaction], T], ref: SecretRef | None, actor: str
    ) -> Coroutine[Any, Any, T]: ...


class _Keys(msgspec.Struct, frozen=True):
    active: str
    previous: str


class _Batch(msgspec.Struct, frozen=True, kw_only=True):
    rewrapped: int
    damaged: tuple[str, ...]
    after: Cursor | None


class Rotation:
    """One rotation. ``run`` does work in a transaction and loads the keys it needs; ``hold`` keeps a key in memory."""

    def __init__(
        self,
        *,
        run: Run,
        open_vault: Callable[[Transaction], OpenedVault | None],
        sealer: Sealer,
        hold: Callable[[KeyEncryptionKey], None],
        actor: str,
    ) -> None:
        self._run = run
        self._open_vault = open_vault
        self._sealer = sealer
        self._hold = hold
        self._actor = actor

    async def rotate(self, source: KeySource) -> RotationReport:
        keys = await self._keys()
        resumed = bool(keys.previous)
        if not resumed:
            before = keys.active
            keys = await self._begin(source, before)
            if not keys.previous:
                # Another process has begun and ended a rotation since: it counts as this one.
                keys = _Keys(keys.active, before)
        rewrapped = 0
        while True:
            done, damaged = await self._pass(keys)
            rewrapped += done
            if damaged:
                await self._run(_refusal(damaged), None, self._actor)
            report = await self._end(keys, rewrapped, resumed)
            if report is not None:
                return report

    async def _keys(self) -> _Keys:
        def work(tx: Transaction) -> _Keys:
            vault = self._existing(tx)
            return _Keys(vault.state.active_key, vault.state.previous_key)

        return await self._run(work, None, self._actor)

    async def _begin(self, source: KeySource, active: str) -> _Keys:
        record, key = await asyncio.to_thread(source.create, (active,))

        def work(tx: Transaction) -> _Keys:
            vault = self._existing(tx)
            state = vault.state
            if state.active_key != active or state.previous_key:
                return _Keys(state.active_key, state.previous_key)
            vault.tables.add_key(record, self._sealer.wrap_index_key(key, state.vault_id, vault.index_key))
            event = NewEvent(
                kind="vault.rotation_started",
                actor=self._actor,
                payload={"key_id": key.key_id, "previous_key_id": active, "key_source": record.source},
            )
            vault.change_keys(event, active=key.key_id, previous=active)
            return _Keys(key.key_id, active)

        # If this fails the new key stays at its source: a key is destroyed only if it surely seals nothing.
        keys = await self._run(work, None, self._actor)
        if keys.active == key.key_id:
            self._hold(key)
        else:
            # Another process began first: join its rotation.
            await asyncio.to_thread(source.forget, record)
        return keys

    async def _pass(self, keys: _Keys) -> tuple[int, list[str]]:
        rewrapped, damaged = 0, list[str]()
        after: Cursor | None = _START
        while after is not None:
            batch = await self._run(self._batch(keys, after), None, self._actor)
            rewrapped += batch.rewrapped
            damaged += batch.damaged
            after = batch.after
        return rewrapped, damaged

    def _batch(self, keys: _Keys, after: Cursor) -> Callable[[Transaction], _Batch]:
        def work(tx: Transaction) -> _Batch:
            vault = self._existing(tx)
            if vault.state.previous_key != keys.previous:
                # Another process has ended the rotation.
                return _Batch(rewrapped=0, damaged=(), after=None)
            old, new = vault.key(keys.previous), vault.key(keys.active)
            rows = vault.tables.versions_under(keys.previous, after, REWRAP_BATCH)
            rewrapped, damaged = 0, []
            for scope, name, version, wrapped in rows:
                try:
                    ref = SecretRef(SecretScope.parse(scope), name)
                    place = Place(vault_id=vault.state.vault_id, ref=ref, version=version)
                    again = self._sealer.rewrap(old, new, place, wrapped)
                except PalyraError:
                    damaged.append(f"{scope}/{name} version {version}")
                    continue
                rewrapped += vault.tables.rewrap(
                    ref, version, old_key_id=keys.previous, new_key_id=keys.active, wrapped=again
                )
            last = rows[-1][:3] if len(rows) == REWRAP_BATCH else None
            return _Batch(rewrapped=rewrapped, damaged=tuple(damaged), after=last)

        return work

    async def _end(self, keys: _Keys, rewrapped: int, resumed: bool) -> RotationReport | None:
        """End the rotation; None if a slower process put something under the previous key again."""

        def work(tx: Transaction) -> RotationReport | None:
            vault = self._existing(tx)
            key = vault.tables.key(keys.active)
            report = RotationReport(
                key_id=keys.active,
                previous_key_id=keys.previous,
                key_source="" if key is None else key.record.source,
                rewrapped=rewrapped,
                resumed=resumed,
            )
            if vault.state.previous_key != keys.previous:
                return report
            if vault.tables.count_under(keys.previous):
                return None
            vault.tables.retire_key(keys.previous)
            event = NewEvent(
                kind="vault.rotated",
                actor=self._actor,
                payload={
                    "key_id": keys.active,
                    "previous_key_id": keys.previous,
                    "key_source": report.key_source,
                    "rewrapped": rewrapped,
                },
            )
            vault.change_keys(event, active=keys.active, previous="")
            return report

        return await self._run(work, None, self._actor)

    def _existing(self, tx: Transaction) -> OpenedVault:
        vault = self._open_vault(tx)
        if vault is None:
            raise NoSuchSecret("there is no vault yet: nothing was ever put into it")
        return vault


def _refusal(damaged: list[str]) -> Callable[[Transaction], NoReturn]:
    """Return work that raises, so that the damage is recorded like all tampering."""

    def work(_tx: Transaction) -> NoReturn:
        named = damaged[:MAX_NAMED]
        raise VaultTampered(f"{len(damaged)} records do not open, so the old key stays: {', '.join(named)}", refs=named)

    return work
