from fakes.identity_house import IdentityHouse
from palyra.store.port import Store


def test_the_journals_store_is_a_store_for_identity(house: IdentityHouse) -> None:
    store: Store = house.store()
    assert store.read("SELECT COUNT(*) FROM identity_devices") == [(0,)]
