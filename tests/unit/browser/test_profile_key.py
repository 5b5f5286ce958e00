"""Keys are read from text, told apart by id, and never shown."""

import base64
import pickle

import pytest

from palyra.browser.domain.profile import ProfileKeyBad, ProfileKeyMissing
from palyra.browser.profiles.encryption import MAX_KEYS, StateKey, StateKeys, parse_keys

ONE, TWO = bytes([1]) * 32, bytes([250]) * 32


def text(*keys: bytes, between: str = ",") -> str:
    return between.join(base64.b64encode(key).decode() for key in keys)


def test_the_first_key_is_the_active_one() -> None:
    for raw in (text(ONE, TWO), text(ONE, TWO, between="\n") + "\n", f" {text(ONE)} , {text(TWO)} "):
        keys = parse_keys(raw, "here")
        assert keys.active.reveal() == ONE
        assert keys.named(StateKey(TWO).key_id).reveal() == TWO


def test_both_alphabets() -> None:
    assert parse_keys(base64.urlsafe_b64encode(TWO).decode(), "here").active.reveal() == TWO


@pytest.mark.parametrize("raw", ["", " , \n", "not base 64!", text(ONE[:16]), text(*[ONE] * (MAX_KEYS + 1))])
def test_bad_keys_are_refused_without_a_word_of_them(raw: str) -> None:
    with pytest.raises(ProfileKeyBad) as refusal:
        parse_keys(raw, "here")
    assert not raw.strip(" ,\n") or raw not in refusal.value.message


def test_a_key_that_is_not_there() -> None:
    with pytest.raises(ProfileKeyMissing):
        StateKeys(StateKey(ONE)).named(StateKey(TWO).key_id)


def test_a_key_is_not_shown() -> None:
    key = StateKey(ONE)
    assert ONE.hex() not in repr(key) and key.key_id in repr(key)
    with pytest.raises(TypeError):
        pickle.dumps(key)
