import base64

import pytest

from palyra.vault.key_source import VARIABLE, EnvironmentKeys, KeyMalformed, KeyMissing, KeyRecord, NewKeyNeeded

ONE, TWO, THREE = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2, 3))


def test_the_first_key_is_the_newest_and_both_open() -> None:
    source = EnvironmentKeys({VARIABLE: f"{TWO}, {ONE}"})
    record, newest = source.create(())
    assert newest.reveal() == b"\2" * 32
    old, _ = EnvironmentKeys({VARIABLE: ONE}).create(())
    assert source.load(old).reveal() == b"\1" * 32
    assert source.load(record).key_id == newest.key_id


def test_rotation_needs_a_key_that_is_not_in_use() -> None:
    source = EnvironmentKeys({VARIABLE: ONE})
    record, _ = source.create(())
    with pytest.raises(NewKeyNeeded):
        source.create((record.key_id,))


@pytest.mark.parametrize("text", ["", " "])
def test_an_absent_key_is_missing(text: str) -> None:
    with pytest.raises(KeyMissing):
        EnvironmentKeys({VARIABLE: text}).create(())
    with pytest.raises(KeyMissing):
        EnvironmentKeys({}).load(KeyRecord(key_id="kek:0", source="environment"))


@pytest.mark.parametrize("text", ["hunter2-hunter2", ONE[:-4], f"{ONE},{TWO},{THREE}", f"{ONE},"])
def test_what_is_no_key_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(KeyMalformed) as caught:
        EnvironmentKeys({VARIABLE: text}).create(())
    assert text.strip(",") not in str(caught.value.as_dict())
