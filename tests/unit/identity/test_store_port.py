from fakes.identity_harness import IdentityHarness
from palyra.store.port import Store


def test_the_journals_store_is_a_store_for_identity(harness: IdentityHarness) -> None:
    store: Store = harness.store()
    assert store.read("SELECT COUNT(*) FROM identity_devices") == [(0,)]
