import os
from pathlib import Path

from fakes.launching import as_ordinary_user
from palyra.sandbox.layers.workspace_scan import remove_tree


def nest(place: Path, depth: int) -> None:
    here = os.open(place, os.O_RDONLY)
    for level in range(depth):
        os.mkdir("d", dir_fd=here)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        os.mkdir(f"moved-{level}", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def test_a_tree_of_any_depth_goes_and_links_are_not_followed(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    outside.mkdir()
    (outside / "precious").write_text("x")
    nest(home, 3000)
    (home / "d" / "link").symlink_to(outside)
    (home / "link").symlink_to(outside)
    os.mkfifo(home / "d" / "fifo")
    before = len(os.listdir("/proc/self/fd"))
    remove_tree(str(home))
    assert len(os.listdir("/proc/self/fd")) == before
    assert not home.exists()
    assert (outside / "precious").read_text() == "x"


def test_rights_that_were_taken_away_are_taken_back() -> None:
    async def body() -> bool:
        import tempfile

        home = Path(tempfile.mkdtemp())
        (home / "closed" / "inner").mkdir(parents=True)
        (home / "closed" / "inner" / "file").write_text("")
        (home / "closed" / "inner").chmod(0)
        (home / "closed").chmod(0)
        remove_tree(str(home))
        return home.exists()

    assert as_ordinary_user(body) is False


def test_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    remove_tree(str(tmp_path / "nothing"))
    (tmp_path / "file").write_text("")
    remove_tree(str(tmp_path / "file"))
    assert (tmp_path / "file").exists()
