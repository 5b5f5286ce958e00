import os
from pathlib import Path

import pytest

from fakes.skill_scene import archive, artifact
from palyra.skills.store import ArtifactChanged, ArtifactFiles, ArtifactsUnusable


def test_what_was_put_is_read_back_by_its_digest(tmp_path: Path) -> None:
    files = ArtifactFiles(tmp_path / "a" / "b")
    skill = artifact()
    assert files.put(skill.raw) == skill.digest == files.put(skill.raw)
    assert files.read(skill.digest).raw == skill.raw
    (only,) = (tmp_path / "a" / "b").iterdir()
    assert only.stat().st_mode & 0o777 == 0o600 and only.parent.stat().st_mode & 0o777 == 0o700


def test_a_damaged_file_is_written_again_by_the_next_put(tmp_path: Path) -> None:
    files = ArtifactFiles(tmp_path / "s")
    digest = files.put(archive())
    (tmp_path / "s" / f"{digest}.skill").write_bytes(b"rot")
    with pytest.raises(ArtifactChanged):
        files.read(digest)
    files.put(archive())
    assert files.read(digest).digest == digest


@pytest.mark.parametrize("swap", ["other", "link", "pipe", "folder", "gone", "empty"])
def test_a_file_that_is_not_the_one_is_refused(tmp_path: Path, swap: str) -> None:
    files = ArtifactFiles(tmp_path / "s")
    digest = files.put(archive())
    path = tmp_path / "s" / f"{digest}.skill"
    content = path.read_bytes()
    path.unlink()
    match swap:
        case "other":
            path.write_bytes(archive("2.0.0"))
        case "link":
            (tmp_path / "same").write_bytes(content)
            path.symlink_to(tmp_path / "same")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "empty":
            path.touch()
        case _:
            pass
    with pytest.raises(ArtifactChanged):
        files.read(digest)


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "A" * 64, "a" * 63, "a" * 64 + "/x"])
def test_only_a_digest_is_a_name(tmp_path: Path, digest: str) -> None:
    with pytest.raises(ArtifactChanged):
        ArtifactFiles(tmp_path).read(digest)


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    files = ArtifactFiles(folder)
    digest = files.put(archive())
    folder.chmod(0o755)
    for work in (lambda: files.read(digest), lambda: files.put(archive("2.0.0"))):
        with pytest.raises(ArtifactsUnusable):
            work()


def test_deleting_twice_is_no_error(tmp_path: Path) -> None:
    files = ArtifactFiles(tmp_path / "s")
    files.delete("a" * 64)
    digest = files.put(archive())
    files.delete(digest)
    files.delete(digest)
    assert not list((tmp_path / "s").iterdir())
