from fakes.vault_house import VaultHouse
from palyra.store.port import Store


def test_the_journals_store_is_a_store_for_the_vault(house: VaultHouse) -> None:
    store: Store = house.open_store()
    assert store.read("SELECT COUNT(*) FROM vault_secrets") == [(0,)]
