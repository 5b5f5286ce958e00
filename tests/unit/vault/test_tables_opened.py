import os

import pytest

from fakes.vault_harness import VaultHarness, ref
from palyra.vault.envelope import AesGcm, Sealer
from palyra.vault.key_source import VaultTampered
from palyra.vault.tables import KeyNeeded, open_vault

SEALER = Sealer(AesGcm(), os.urandom)


async def test_there_is_none_before_the_first_secret(harness: VaultHarness) -> None:
    assert await harness.open_store().transact(lambda tx: open_vault(tx, SEALER, {}, {})) is None


async def test_a_key_that_is_not_held_is_asked_for_by_its_record(harness: VaultHarness) -> None:
    vault = await harness.filled({"global/k": "x"})
    with pytest.raises(KeyNeeded) as caught:
        await harness.open_store().transact(lambda tx: open_vault(tx, SEALER, {}, {}))
    assert caught.value.record.key_id == (await vault.status()).key_id


async def test_absence_is_verified_as_well(harness: VaultHarness) -> None:
    vault = await harness.filled({"global/k": "x"})
    store = harness.open_store()
    known = dict(vault._keys)

    def look(tx):  # type: ignore[no-untyped-def]
        opened = open_vault(tx, SEALER, known, {})
        assert opened.head(ref("global/other")) is None
        assert opened.head(ref("global/k")).current == 1
        tx.execute("DELETE FROM vault_secrets")
        with pytest.raises(VaultTampered):
            opened.head(ref("global/k"))

    await store.transact(look)


async def test_tables_that_vanished_are_missed(harness: VaultHarness) -> None:
    await harness.filled({"global/k": "x"})

    def vanish(tx):  # type: ignore[no-untyped-def]
        for table in ("vault_state", "vault_keys", "vault_secrets", "vault_versions"):
            tx.execute(f"DELETE FROM {table}")
        with pytest.raises(VaultTampered, match="tables are empty"):
            open_vault(tx, SEALER, {}, {})

    await harness.open_store().transact(vanish)
