import asyncio
import os
from pathlib import Path

import pytest

from fakes.skill_harness import archive, artifact
from palyra.skills.registry.archives import ArtifactChanged, ArtifactFiles, ArtifactsUnusable


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


async def test_writers_hold_the_folder_together_and_who_deletes_alone(tmp_path: Path) -> None:
    one, other = ArtifactFiles(tmp_path / "s"), ArtifactFiles(tmp_path / "s")
    with pytest.raises(ArtifactsUnusable):
        async with one.lock(alone=True):
            pass
    assert not one.is_there()
    async with one.lock(), other.lock():
        with pytest.raises(ArtifactsUnusable, match="busy"):
            async with other.lock(alone=True, patience=0.02):
                pass
    async with one.lock(alone=True):
        for alone in (True, False):
            with pytest.raises(ArtifactsUnusable, match="busy"):
                async with other.lock(alone=alone, patience=0):
                    pass


async def test_who_waits_for_the_folder_and_is_cancelled_does_not_keep_it(tmp_path: Path) -> None:
    one, other = ArtifactFiles(tmp_path / "s"), ArtifactFiles(tmp_path / "s")

    async def wait() -> None:
        async with other.lock(alone=True):
            pass

    async with one.lock():
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.02)
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with one.lock(alone=True, patience=0):
        pass


def test_a_sweep_takes_only_what_was_written_here_and_is_not_needed(tmp_path: Path) -> None:
    files = ArtifactFiles(tmp_path / "s")
    needed, stale = files.put(archive()), files.put(archive("2.0.0"))
    others = ["notes.txt", ".new", ".zz.new", f"{stale}.skill.bak", "ab.skill"]
    for name in (*others, ".0123456789abcdef.new"):
        (tmp_path / "s" / name).touch()
    (tmp_path / "s" / f"{'a' * 64}.skill").mkdir()
    files.sweep({needed})
    left = {path.name for path in (tmp_path / "s").iterdir()}
    assert left == {f"{needed}.skill", f"{'a' * 64}.skill", *others}
