import json
import os
import threading
from pathlib import Path

import pytest

from palyra.vault.key_file import FILE_FORMAT, KeyFile, SharedKeyFile, read_private
from palyra.vault.key_source import KeyMalformed, KeyMissing, KeyRecord, KeyUnsafe, NewKeyNeeded
from palyra.vault.limits import MAX_KEY_FILE_BYTES, MAX_KEYS_IN_FILE


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "config" / "vault.key"


def source(place: Path) -> KeyFile:
    return KeyFile(place, place.parent.parent / "state")


def test_the_file_is_made_private_with_its_folder(place: Path) -> None:
    record, key = source(place).create(())
    assert place.stat().st_mode & 0o7777 == 0o600 and place.parent.stat().st_mode & 0o077 == 0
    assert [path.name for path in place.parent.iterdir()] == ["vault.key"]
    document = json.loads(place.read_bytes())
    assert document["format"] == FILE_FORMAT and document["keys"][0]["id"] == key.key_id == record.key_id


def test_nothing_is_made_by_looking(place: Path) -> None:
    with pytest.raises(KeyMissing):
        source(place).load(KeyRecord(key_id="kek:0", source="file"))
    source(place).forget(KeyRecord(key_id="kek:0", source="file"))
    assert not place.parent.exists()


def test_keys_of_several_vaults_stand_beside_each_other_up_to_a_limit(place: Path) -> None:
    records = [source(place).create(())[0] for _ in range(MAX_KEYS_IN_FILE)]
    assert {source(place).load(record).key_id for record in records} == {record.key_id for record in records}
    with pytest.raises(KeyMalformed):
        source(place).create(())
    source(place).forget(records[0])
    with pytest.raises(KeyMissing):
        source(place).load(records[0])
    source(place).create(())


def test_two_that_add_at_once_lose_nothing(place: Path) -> None:
    made: list[str] = []

    def add() -> None:
        made.extend(source(place).create(())[0].key_id for _ in range(5))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = {entry["id"] for entry in json.loads(place.read_bytes())["keys"]}
    assert kept == set(made) and len(made) == 20


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"format": "palyra.vault.key-file/2", "keys": []}', b"\xff" * 100,
     b" " * (MAX_KEY_FILE_BYTES + 1),
     b'{"format": "palyra.vault.key-file/1", "keys": [{"id": "kek:0", "key": "c2VjcmV0LXNlY3JldA=="}]}'],
)  # fmt: skip
def test_what_is_no_key_file_is_refused_without_showing_what_is_in_it(place: Path, content: bytes) -> None:
    place.parent.mkdir(mode=0o700)
    place.write_bytes(content)
    place.chmod(0o600)
    with pytest.raises(KeyMalformed) as caught:
        source(place).load(KeyRecord(key_id="kek:0", source="file"))
    assert "c2VjcmV0" not in str(caught.value.as_dict())


def test_a_key_under_a_wrong_id_is_refused(place: Path) -> None:
    record, _ = source(place).create(())
    place.write_text(place.read_text().replace(record.key_id, "kek:" + "0" * 32))
    with pytest.raises(KeyMalformed):
        source(place).load(record)


def test_a_fifo_does_not_block_and_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    with pytest.raises(KeyUnsafe):
        read_private(tmp_path / "fifo", 100)
    assert read_private(tmp_path / "absent", 100) is None


def test_a_folder_that_others_may_change_is_refused(place: Path) -> None:
    place.parent.mkdir()
    place.parent.chmod(0o777)
    with pytest.raises(KeyUnsafe):
        source(place).create(())


def test_a_key_that_is_replaced_while_it_is_read_is_read_anew(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another process's rotation does it: the file that was opened has no name any more when it is looked at."""
    first, _ = source(place).create(())
    real, replaced = os.fstat, []

    def replacing(descriptor: int) -> os.stat_result:
        if not replaced:
            replaced.append(True)
            other = place.with_name("other")
            other.write_bytes(place.read_bytes())
            other.chmod(0o600)
            other.replace(place)
        return real(descriptor)

    monkeypatch.setattr(os, "fstat", replacing)
    assert source(place).load(first).key_id == first.key_id and replaced


def test_a_key_that_is_replaced_for_ever_is_given_up(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record, _ = source(place).create(())
    real = os.fstat

    def replacing(descriptor: int) -> os.stat_result:
        other = place.with_name("other")
        other.write_bytes(place.read_bytes())
        other.chmod(0o600)
        other.replace(place)
        return real(descriptor)

    monkeypatch.setattr(os, "fstat", replacing)
    with pytest.raises(KeyUnsafe, match="again and again"):
        source(place).load(record)


def test_a_full_shared_file_keeps_its_keys_and_asks_for_room(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "arguments.key"
    shared = SharedKeyFile(path, tmp_path / "state")
    known: set[str] = set()
    for _ in range(MAX_KEYS_IN_FILE):
        known.add(shared.create(known)[1].key_id)
    with pytest.raises(NewKeyNeeded):
        shared.create(known)
    for key_id in known:
        assert shared.load(KeyRecord(key_id=key_id, source=shared.kind)).key_id == key_id
