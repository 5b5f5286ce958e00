"""What every place of keys must do, whatever it is. A new one joins PLACES and passes."""

import base64
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes.vault_harness import NOTE, DictKeyring, VaultHarness, ref
from palyra.secret import Secret
from palyra.vault.key_file import KeyFile, PassphraseKeys, from_file
from palyra.vault.key_source import VARIABLE, EnvironmentKeys, KeyMissing, KeyRecord, KeySource, OsKeyring
from palyra.vault.limits import MIN_SCRYPT_N

# A place, and what a person does to have a new key there for a rotation.
Made = tuple[KeySource, Callable[[], None]]


def _nothing() -> None:
    """The place makes keys itself."""


def key_file(folder: Path) -> Made:
    return KeyFile(folder / "config" / "vault.key", folder / "state"), _nothing


def keyring(_folder: Path) -> Made:
    package = DictKeyring()
    return OsKeyring(lambda: package), _nothing


def environment(_folder: Path) -> Made:
    variables = {VARIABLE: base64.b64encode(os.urandom(32)).decode()}

    def renew() -> None:
        newest = base64.b64encode(os.urandom(32)).decode()
        variables[VARIABLE] = f"{newest},{variables[VARIABLE].partition(',')[0]}"

    return EnvironmentKeys(variables), renew


def passphrase(folder: Path) -> Made:
    file = folder / "passphrase"
    file.write_text("the first passphrase\n")
    file.chmod(0o600)
    source = PassphraseKeys(from_file(file), cost=MIN_SCRYPT_N)

    def renew() -> None:
        file.write_text("another passphrase\nthe first passphrase\n")

    return source, renew


PLACES = {"file": key_file, "keyring": keyring, "environment": environment, "passphrase": passphrase}


@pytest.fixture(params=PLACES)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    (tmp_path / "state").mkdir(mode=0o700, exist_ok=True)
    return PLACES[request.param](tmp_path)


def test_a_created_key_is_found_by_its_record(made: Made) -> None:
    source, _ = made
    record, key = source.create(())
    assert record.source == source.kind in PLACES and record.key_id == key.key_id
    assert source.load(record).reveal() == key.reveal()
    text = str(record)
    assert base64.b64encode(key.reveal()).decode() not in text and key.reveal().hex() not in text


def test_a_key_that_is_not_there_is_missing_and_no_other_is_given_for_it(made: Made) -> None:
    source, _ = made
    record, _key = source.create(())
    stranger = KeyRecord(key_id="kek:" + "0" * 32, source=source.kind, parameters=record.parameters)
    with pytest.raises(KeyMissing):
        source.load(stranger)


def test_a_second_key_is_another_and_both_can_be_loaded(made: Made) -> None:
    source, renew = made
    first, _ = source.create(())
    renew()
    second, _ = source.create((first.key_id,))
    assert first.key_id != second.key_id
    assert [source.load(record).key_id for record in (first, second)] == [first.key_id, second.key_id]


def test_forgetting_leaves_the_other_key(made: Made) -> None:
    source, renew = made
    first, _ = source.create(())
    renew()
    second, _ = source.create((first.key_id,))
    source.forget(first)
    source.forget(first)
    assert source.load(second).key_id == second.key_id


async def test_a_vault_lives_and_rotates_on_it(made: Made, tmp_path: Path) -> None:
    source, renew = made
    harness = VaultHarness(tmp_path)
    try:
        vault = harness.vault(source)
        await vault.put(ref("global/k"), Secret("value"), actor="a")
        renew()
        report = await harness.vault(source).rotate(actor="a")
        assert (report.rewrapped, report.key_source) == (1, source.kind)
        assert (await vault.reveal(ref("global/k"), note=NOTE)).reveal() == "value"
        assert (await harness.vault(source).reveal(ref("global/k"), note=NOTE)).reveal() == "value"
    finally:
        harness.close()
