import base64
import pickle

import pytest

from palyra.vault.key_source import KeyEncryptionKey, KeyMalformed, decode_key


def test_an_id_tells_keys_apart_and_shows_nothing_of_them() -> None:
    one, two = KeyEncryptionKey(b"a" * 32), KeyEncryptionKey(b"b" * 32)
    assert one.key_id != two.key_id and one.key_id == KeyEncryptionKey(b"a" * 32).key_id
    assert one.key_id.startswith("kek:") and len(one.key_id) == 36
    assert "aaaa" not in repr(one) and "redacted" in repr(one)


def test_a_key_is_not_pickled() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(KeyEncryptionKey(b"a" * 32))


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_only_32_bytes_are_a_key(size: int) -> None:
    with pytest.raises(KeyMalformed):
        KeyEncryptionKey(b"k" * size)
    with pytest.raises(KeyMalformed):
        decode_key(base64.b64encode(b"k" * size).decode(), "here")


def test_both_alphabets_of_base_64_are_read_and_nothing_else_is() -> None:
    raw = bytes(range(224, 256))
    assert decode_key(base64.b64encode(raw).decode(), "x") == decode_key(base64.urlsafe_b64encode(raw).decode(), "x")
    text = "not base 64 at all, and long enough"
    with pytest.raises(KeyMalformed) as caught:
        decode_key(text, "here")
    assert text not in str(caught.value.as_dict())
