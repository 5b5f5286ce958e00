"""The digest of a build: the same for the same files, another for every other."""

import json
import os
import shutil
from pathlib import Path

import pytest

from palyra.fleet.agent.facts import build_digest, measure, package_folder
from palyra.fleet.agent.lease import ImageFileBad


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "pkg"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.py").write_text("one")
    (folder / "sub" / "b.py").write_text("two")
    return folder


def test_two_installations_of_the_same_files_have_the_same_digest(package: Path, tmp_path: Path) -> None:
    shutil.copytree(package, tmp_path / "copy")
    (tmp_path / "copy" / "__pycache__").mkdir()
    (tmp_path / "copy" / "__pycache__" / "a.pyc").write_bytes(os.urandom(8))
    assert build_digest(tmp_path / "copy") == build_digest(package)


def test_every_change_shows(package: Path) -> None:
    seen = {build_digest(package)}

    def changed() -> None:
        digest = build_digest(package)
        assert digest not in seen
        seen.add(digest)

    (package / "a.py").write_text("onf")
    changed()
    (package / "a.py").rename(package / "c.py")
    changed()
    (package / "new.py").write_text("")
    changed()
    (package / "new.py").unlink()
    (package / "new.py").symlink_to("c.py")
    changed()
    (package / "linked").symlink_to("sub")
    changed()
    # Text moved from one file's end to the next one's beginning.
    (package / "c.py").write_text("on")
    (package / "sub" / "b.py").write_text("ftwo")
    changed()


def test_this_program_measures_itself() -> None:
    assert (package_folder() / "fleet" / "agent" / "facts.py").is_file()
    found = measure(image_file=Path("/nonexistent/image.json"))
    assert len(found.build_digest_sha256) == 64 and found.image_digest_sha256 == ""


def test_the_image_is_what_the_machine_says_else_what_its_launcher_says(package: Path, tmp_path: Path) -> None:
    image = tmp_path / "image.json"
    assert measure(package, image_file=image, image_digest="11" * 32).image_digest_sha256 == "11" * 32
    image.write_text(json.dumps({"image_digest_sha256": "22" * 32, "artifact_digest_sha256": "33" * 32, "x": 1}))
    found = measure(package, image_file=image, image_digest="11" * 32)
    assert (found.image_digest_sha256, found.artifact_digest_sha256) == ("22" * 32, "33" * 32)


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"image_digest_sha256": "nonsense"}', b"\xff", b" " * 70_000])
def test_a_file_that_names_no_image_is_an_error_and_not_silence(package: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "image.json").write_bytes(content)
    with pytest.raises(ImageFileBad):
        measure(package, image_file=tmp_path / "image.json")
