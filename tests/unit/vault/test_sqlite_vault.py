import pytest

from fakes.vault_harness import VaultHarness, ref
from palyra.vault.key_source import KeyRecord, VaultTampered
from palyra.vault.tables import IS_CHANGE, VaultTables


async def test_the_last_change_is_found_by_an_index_of_its_own(harness: VaultHarness) -> None:
    await harness.filled({"global/k": "x"})
    store = harness.open_store()
    assert await store.transact(lambda tx: VaultTables(tx).newest_change()) == 2
    plan = await store.transact(
        lambda tx: tx.execute(f"EXPLAIN QUERY PLAN SELECT MAX(seq) FROM events WHERE {IS_CHANGE}")
    )
    assert "changes_of_vault" in plan[0][3]


async def test_a_destroyed_version_leaves_no_wrapped_key_in_the_table(harness: VaultHarness) -> None:
    await harness.filled({"global/k": "x"})
    store = harness.open_store()
    seen: list[bytes] = []

    def work(tx):  # type: ignore[no-untyped-def]
        tx.execute("CREATE TEMP TRIGGER spy BEFORE DELETE ON vault_versions BEGIN SELECT RAISE(ABORT, 'spied'); END")
        try:
            VaultTables(tx).destroy_versions(ref("global/k"), 2)
        except Exception:
            seen.extend(row[0] for row in tx.execute("SELECT wrapped FROM vault_versions"))
        tx.execute("DROP TRIGGER spy")

    await store.transact(work)
    assert seen and set(seen[0]) == {0}


async def test_unreadable_parameters_of_a_key_are_tampering(harness: VaultHarness) -> None:
    def work(tx):  # type: ignore[no-untyped-def]
        tables = VaultTables(tx)
        tables.add_key(KeyRecord(key_id="kek:1", source="file", parameters={"n": 1}), b"w")
        assert tables.key("kek:1").record.parameters == {"n": 1}
        assert tables.key("kek:2") is None
        tx.execute("UPDATE vault_keys SET parameters = '[1]'")
        with pytest.raises(VaultTampered):
            tables.key("kek:1")

    await harness.open_store().transact(work)


async def test_a_rewrap_changes_only_what_is_still_under_the_old_key(harness: VaultHarness) -> None:
    await harness.filled({"global/k": "x"})

    def work(tx):  # type: ignore[no-untyped-def]
        tables = VaultTables(tx)
        name, sealed = ref("global/k"), tables.version(ref("global/k"), 1)
        assert tables.rewrap(name, 1, old_key_id="kek:other", new_key_id="kek:new", wrapped=b"w") == 0
        assert tables.rewrap(name, 1, old_key_id=sealed.key_id, new_key_id="kek:new", wrapped=b"w") == 1
        assert tables.count_under("kek:new") == 1 and tables.version(name, 2) is None

    await harness.open_store().transact(work)
