"""A skill's values on disk, and what somebody who tampers with them gets."""

from pathlib import Path

import pytest

from palyra.config.state_dir import StateDir
from palyra.executors.wasm.skill_storage import SkillFolders, SkillStorage, StorageFull, StorageUnusable
from palyra.ids import Principal


def storage(folder: Path, most_bytes: int = 10_000, most_values: int = 10) -> SkillStorage:
    return SkillStorage(folder / "data", most_bytes=most_bytes, most_values=most_values)


def test_values_are_put_read_listed_and_deleted(tmp_path: Path) -> None:
    kept = storage(tmp_path)
    assert kept.get("notes/a") is None and kept.paths("") == ()
    kept.delete("notes/a")
    assert not (tmp_path / "data").exists()
    for path, value in (("notes/b", b"2"), ("notes/a", b"1"), ("other/ä", b""), ("notes/a", b"one")):
        kept.put(path, value)
    assert (kept.get("notes/a"), kept.get("other/ä"), kept.get("notes")) == (b"one", b"", None)
    assert kept.paths("notes/") == ("notes/a", "notes/b") and kept.paths("") == ("notes/a", "notes/b", "other/ä")
    kept.delete("notes/a")
    assert storage(tmp_path).paths("") == ("notes/b", "other/ä")


@pytest.mark.parametrize("path", ["../../up", "/etc/passwd", "a\0b", "x" * 5_000, ".", "CON"])
def test_no_path_is_a_file_name(tmp_path: Path, path: str) -> None:
    kept = storage(tmp_path)
    kept.put(path, b"v")
    assert kept.get(path) == b"v"
    (name,) = (tmp_path / "data").iterdir()
    assert len(name.name) == 64 and name.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["data"]


def test_quotas_count_everything_and_a_replaced_value_once(tmp_path: Path) -> None:
    kept = storage(tmp_path, most_bytes=200, most_values=3)
    kept.put("a", b"x" * 100)
    kept.put("a", b"y" * 100)
    with pytest.raises(StorageFull):
        kept.put("b", b"x" * 100)
    assert kept.get("b") is None
    kept.put("b", b"")
    kept.put("c", b"")
    with pytest.raises(StorageFull):
        kept.put("d", b"")


def test_erasing_leaves_nothing_and_a_new_value_begins_anew(tmp_path: Path) -> None:
    kept = storage(tmp_path)
    kept.erase()
    kept.put("a", b"1")
    kept.put("b", b"22")
    (tmp_path / "data" / ".left.new").write_bytes(b"of a crash")
    assert kept.stored().values == 2 and kept.stored().bytes > 3
    kept.erase()
    assert not (tmp_path / "data").exists() and kept.stored().values == 0
    kept.put("a", b"3")
    assert kept.paths("") == ("a",)


def test_every_skill_has_a_folder_of_its_own(tmp_path: Path) -> None:
    folders = SkillFolders(StateDir.open(tmp_path / "state"))
    folders.of("acme.notes", Principal.parse("agent:a"), most_bytes=1_000).put("a", b"1")
    folders.erase("acme.other")
    assert folders.stored("acme.notes").values == 1 and folders.stored("acme.other").values == 0
    folders.erase("acme.notes")
    assert folders.stored("acme.notes").values == 0


ODD = ("agent:a", "agent:A", "user:a", "agent:a/b", "agent:a.b", "agent:a/../b", "agent:" + "X" * 100)


def test_every_principal_has_a_folder_of_its_own_and_purging_takes_them_all(tmp_path: Path) -> None:
    folders = SkillFolders(StateDir.open(tmp_path / "state"))
    for name in ODD:
        folders.of("acme.notes", Principal.parse(name), most_bytes=1_000).put("a", name.encode())
    for name in ODD:
        assert folders.of("acme.notes", Principal.parse(name)).get("a") == name.encode()
    skill = tmp_path / "state" / "skills" / "acme.notes"
    names = [each.name for each in (skill / "principals").iterdir()]
    assert len({name.lower() for name in names}) == len(ODD), "also where capitals are not told from small letters"
    # Made before principals had folders of their own.
    (skill / "data").mkdir(mode=0o700)
    storage(skill).put("a", b"somebody's")
    assert folders.kept("acme.notes") == str(skill / "data") and folders.stored("acme.notes").values == len(ODD) + 1
    folders.erase("acme.notes")
    assert list(skill.iterdir()) == [] and folders.kept("acme.notes") == ""


def test_a_file_that_is_another_paths_is_not_believed(tmp_path: Path) -> None:
    kept = storage(tmp_path)
    kept.put("a", b"1")
    (one,) = (tmp_path / "data").iterdir()
    kept.put("b", b"2")
    (other,) = (file for file in (tmp_path / "data").iterdir() if file != one)
    other.write_bytes(one.read_bytes())
    assert kept.get("b") is None and kept.paths("") == ("a",)


def test_links_and_open_directories_are_refused(tmp_path: Path) -> None:
    kept = storage(tmp_path)
    kept.put("a", b"1")
    (one,) = (tmp_path / "data").iterdir()
    (tmp_path / "secret").write_bytes(b"s")
    one.unlink()
    one.symlink_to(tmp_path / "secret")
    with pytest.raises(StorageUnusable):
        kept.get("a")
    (tmp_path / "data").chmod(0o755)
    with pytest.raises(StorageUnusable, match="open to others"):
        kept.put("b", b"1")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    with pytest.raises(StorageUnusable):
        SkillStorage(tmp_path / "link", most_bytes=100).get("a")
