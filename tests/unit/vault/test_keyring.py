from typing import Any

import pytest

from fakes.vault_harness import DictKeyring
from palyra.vault.key_source import SERVICE, KeyMalformed, KeyMissing, KeyringUnavailable, OsKeyring


def over(package: DictKeyring) -> OsKeyring:
    return OsKeyring(lambda: package)


def test_a_key_is_kept_found_and_destroyed() -> None:
    package = DictKeyring()
    record, key = over(package).create(())
    assert over(package).load(record).reveal() == key.reveal()
    over(package).forget(record)
    over(package).forget(record)
    assert package.kept == {}
    with pytest.raises(KeyMissing):
        over(package).load(record)


def test_without_the_package_it_says_what_to_install() -> None:
    def absent() -> Any:
        raise ImportError("No module named 'keyring'")

    with pytest.raises(KeyringUnavailable) as caught:
        OsKeyring(absent).create(())
    assert "palyra[keyring]" in caught.value.hint


@pytest.mark.parametrize(
    "module",
    ["keyring.backends.fail", "keyring.backends.null", "keyrings.alt.file", "evil", "keyring.backends.SecretServiceX"],
)
def test_a_backend_that_protects_nothing_is_refused(module: str) -> None:
    package = DictKeyring(module)
    with pytest.raises(KeyringUnavailable):
        over(package).create(())
    assert package.kept == {}


def test_a_chain_is_as_good_as_its_weakest_part() -> None:
    chain = DictKeyring("keyring.backends.chainer")
    with pytest.raises(KeyringUnavailable):
        over(chain).create(())
    with pytest.raises(KeyringUnavailable):
        over(chain.chain(DictKeyring(), DictKeyring("keyrings.alt.file"))).create(())
    over(chain.chain(DictKeyring(), DictKeyring("keyring.backends.kwallet"))).create(())


def test_errors_of_the_backend_become_ours_without_their_text() -> None:
    package = DictKeyring()
    record, _ = over(package).create(())
    package.broken = RuntimeError("secret-in-the-text")
    for ask in (
        lambda: over(package).load(record),
        lambda: over(package).create(()),
        lambda: over(package).forget(record),
    ):
        with pytest.raises(KeyringUnavailable) as caught:
            ask()
        assert "secret-in-the-text" not in str(caught.value.as_dict())
        assert caught.value.__cause__ is None


def test_a_changed_entry_is_not_taken_for_the_key() -> None:
    package = DictKeyring()
    record, _ = over(package).create(())
    other, _ = over(package).create(())
    package.kept[SERVICE, record.key_id] = package.kept[SERVICE, other.key_id]
    with pytest.raises(KeyMissing):
        over(package).load(record)
    package.kept[SERVICE, record.key_id] = "nonsense"
    with pytest.raises(KeyMalformed):
        over(package).load(record)
