from fakes.vault_harness import VaultHarness
from palyra.store.port import Store


def test_the_journals_store_is_a_store_for_the_vault(harness: VaultHarness) -> None:
    store: Store = harness.open_store()
    assert store.read("SELECT COUNT(*) FROM vault_secrets") == [(0,)]
