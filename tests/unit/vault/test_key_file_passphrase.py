import os
from pathlib import Path

import pytest

from palyra.secret import Secret
from palyra.vault.key_file import (
    NEW,
    OPEN,
    PassphraseKeys,
    ScryptParameters,
    derive,
    from_descriptor,
    from_file,
    from_nowhere,
    from_terminal,
)
from palyra.vault.key_source import KeyMalformed, KeyMissing, KeyRecord, KeyUnsafe, PassphraseNeeded, PassphraseWeak
from palyra.vault.limits import MAX_PASSPHRASE_BYTES, MIN_SCRYPT_N, SCRYPT_N

OLD, FRESH = "correct horse battery", "staple tree lamp moon"


def keys(*passphrases: str) -> PassphraseKeys:
    return PassphraseKeys(lambda _: [Secret(one) for one in passphrases], cost=MIN_SCRYPT_N)


def test_the_same_passphrase_opens_again_and_a_fresh_salt_makes_another_key() -> None:
    record, key = keys(OLD).create(())
    assert keys(OLD).load(record).reveal() == key.reveal()
    again, other = keys(OLD).create(())
    assert again.key_id != record.key_id and other.reveal() != key.reveal()
    assert OLD not in str(record) and set(record.parameters) == {"salt", "n", "r", "p"}


def test_the_new_one_stands_first_and_the_old_one_still_opens() -> None:
    record, key = keys(OLD).create(())
    both = keys(FRESH, OLD)
    assert both.load(record).key_id == key.key_id
    newer, _ = both.create((record.key_id,))
    assert keys(FRESH).load(newer).key_id == newer.key_id
    with pytest.raises(KeyMissing):
        keys(OLD).load(newer)


def test_a_wrong_passphrase_says_so_and_nothing_else() -> None:
    record, _ = keys(OLD).create(())
    with pytest.raises(KeyMissing) as caught:
        keys("wrong wrong wrong").load(record)
    assert "wrong wrong" not in str(caught.value.as_dict())


def test_a_short_passphrase_is_refused_for_sealing() -> None:
    with pytest.raises(PassphraseWeak):
        keys("short").create(())


@pytest.mark.parametrize(
    "changes",
    [{"n": 2}, {"n": 2**30}, {"n": MIN_SCRYPT_N + 1}, {"n": 0}, {"n": -4}, {"r": 0}, {"r": 10**6}, {"p": 0},
     {"p": 10**6}, {"salt": "zz" * 16}, {"salt": ""}, {"salt": "00"}, {"more": 1}, {"n": "many"}],
    ids=str,
)  # fmt: skip
def test_a_cost_that_somebody_edited_is_refused_before_it_is_paid(changes: dict[str, object]) -> None:
    record, _ = keys(OLD).create(())
    edited = KeyRecord(key_id=record.key_id, source=record.source, parameters={**record.parameters, **changes})
    with pytest.raises(KeyMalformed):
        keys(OLD).load(edited)


def test_the_published_vector_of_scrypt() -> None:
    """RFC 7914, section 12, the third one, with our length of the salt left out of account."""
    import hashlib

    raw = hashlib.scrypt(b"pleaseletmein", salt=b"SodiumChloride", n=16384, r=8, p=1, dklen=32, maxmem=2**26)
    assert raw.hex().startswith("7023bdcb3afd7348461c06cd81fd38eb")
    assert derive(Secret("x"), ScryptParameters(salt="00" * 16, n=MIN_SCRYPT_N)).key_id.startswith("kek:")


def test_the_cost_for_people_is_the_one_of_the_limits() -> None:
    assert ScryptParameters(salt="00" * 16).n == SCRYPT_N


def test_a_file_is_read_each_time_and_must_be_private(tmp_path: Path) -> None:
    file = tmp_path / "passphrase"
    read = from_file(file)
    with pytest.raises(PassphraseNeeded):
        read(OPEN)
    file.write_text(f"{OLD}\r\n")
    file.chmod(0o600)
    assert [one.reveal() for one in read(OPEN)] == [OLD]
    file.write_text(f"{FRESH}\n{OLD}\n")
    assert [one.reveal() for one in read(NEW)] == [FRESH, OLD]
    file.chmod(0o640)
    with pytest.raises(KeyUnsafe):
        read(OPEN)


@pytest.mark.parametrize(
    ("content", "error"),
    [(b"", PassphraseNeeded), (b"\n\n", PassphraseNeeded), (b"a\nb\nc\n", KeyMalformed), (b"\xff\xfe", KeyMalformed),
     (b"x" * (MAX_PASSPHRASE_BYTES + 1), KeyMalformed)],
)  # fmt: skip
def test_a_file_that_holds_something_else_is_refused(tmp_path: Path, content: bytes, error: type[Exception]) -> None:
    file = tmp_path / "passphrase"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(error):
        from_file(file)(OPEN)


def test_a_descriptor_is_read_once_and_remembered() -> None:
    reader, writer = os.pipe()
    os.write(writer, f"{OLD}\n".encode())
    os.close(writer)
    read = from_descriptor(reader)
    assert [one.reveal() for one in read(OPEN)] == [OLD] == [one.reveal() for one in read(OPEN)]
    os.close(reader)
    with pytest.raises(PassphraseNeeded):
        from_descriptor(reader)(OPEN)


def test_a_person_is_asked_for_what_is_needed_and_nobody_elsewhere() -> None:
    asked: list[str] = []

    def ask(question: str) -> Secret:
        asked.append(question)
        return Secret(OLD)

    assert [one.reveal() for one in from_terminal(ask)(NEW)] == [OLD] and asked == [NEW]
    with pytest.raises(PassphraseNeeded):
        from_nowhere(OPEN)
