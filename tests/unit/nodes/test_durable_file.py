import stat

import pytest

from palyra.nodes.store.file import DurableFolder, StateFileUnusable


def good(raw):
    return raw != b"bad"


@pytest.fixture
def folder(tmp_path):
    return DurableFolder(tmp_path)


def put(folder, content):
    folder.write(".staged", content)
    folder.replace("file", ".staged", backup="file.bak", is_good=good)


def test_what_was_written_is_there_for_its_owner_alone(folder):
    folder.write("file", b"content")
    assert folder.read("file") == b"content"
    assert stat.S_IMODE((folder.path / "file").stat().st_mode) == 0o600
    assert folder.read("other") is None


def test_the_one_before_becomes_the_backup(folder):
    for content in (b"one", b"two", b"three"):
        put(folder, content)
    assert (folder.read("file"), folder.read("file.bak")) == (b"three", b"two")
    assert sorted(path.name for path in folder.path.iterdir()) == ["file", "file.bak"]


def test_the_first_has_no_backup(folder):
    put(folder, b"one")
    assert folder.read("file.bak") is None


def test_what_is_not_good_does_not_become_the_backup(folder):
    put(folder, b"one")
    put(folder, b"two")
    (folder.path / "file").write_bytes(b"bad")
    put(folder, b"three")
    assert (folder.read("file"), folder.read("file.bak")) == (b"three", b"one")


def test_a_step_that_somebody_else_took_is_not_taken_again(folder):
    put(folder, b"one")
    folder.replace("file", ".staged", backup="file.bak", is_good=good)
    assert (folder.read("file"), folder.read("file.bak")) == (b"one", None)


def test_sweep_set_aside_and_remove(folder):
    for name in (".a", ".b", "c"):
        folder.write(name, b"x")
    folder.sweep(lambda name: name.startswith("."))
    folder.set_aside("c", "d")
    folder.set_aside("nothing", "e")
    folder.remove("nothing")
    assert [path.name for path in folder.path.iterdir()] == ["d"]


def test_links_are_not_followed(folder, tmp_path):
    (tmp_path / "target").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(StateFileUnusable):
        folder.read("link")
    with pytest.raises(StateFileUnusable):
        folder.write("link", b"y")
    assert (tmp_path / "target").read_bytes() == b"x"
