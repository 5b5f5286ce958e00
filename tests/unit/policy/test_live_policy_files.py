"""Which files become policies, in which order."""

from pathlib import Path

import pytest

from palyra.errors import ExitCode
from palyra.policy import live_policy
from palyra.policy.bundle import SCHEMA_NAME
from palyra.policy.cedar import CedarEngine
from palyra.policy.live_policy import PolicyDirectoryMissing, PolicyFileRefused, PolicyFileTooLarge, load_bundle
from palyra.policy.request import EntityDirectory

NOBODY = EntityDirectory()


def test_the_defaults_alone(tmp_path: Path) -> None:
    for folder in (None, tmp_path, tmp_path / "absent"):
        bundle = load_bundle(folder, NOBODY)
        assert [name for name, _ in bundle.files] == ["defaults/baseline.cedar"]
        assert bundle.schema_name == f"defaults/{SCHEMA_NAME}"
        CedarEngine(bundle)


def test_operators_files_follow_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.cedar", "a.cedar", ".#a.cedar", "notes.txt", "a.cedar~"):
        (tmp_path / name).write_text(f"// {name}")
    bundle = load_bundle(tmp_path, NOBODY)
    assert bundle.files[1:] == (("a.cedar", "// a.cedar"), ("b.cedar", "// b.cedar"))


def test_a_named_directory_must_exist(tmp_path: Path) -> None:
    with pytest.raises(PolicyDirectoryMissing) as caught:
        load_bundle(tmp_path / "absent", NOBODY, must_exist=True)
    assert caught.value.exit_code is ExitCode.UNAVAILABLE


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PolicyFileRefused):
        load_bundle(tmp_path / "file", NOBODY)


def test_links_inside_the_directory_are_followed(tmp_path: Path) -> None:
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "real.cedar").write_text("// real")
    (tmp_path / "x.cedar").symlink_to("..data/real.cedar")
    assert load_bundle(tmp_path, NOBODY).files[1:] == (("x.cedar", "// real"),)


def test_a_directory_reached_through_a_link_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x.cedar").write_text("// x")
    (tmp_path / "link").symlink_to("real")
    assert len(load_bundle(tmp_path / "link", NOBODY).files) == 2


@pytest.mark.promise("P-limits")
@pytest.mark.parametrize(
    ("limit", "value"), [("MAX_POLICY_FILES", 1), ("MAX_BUNDLE_BYTES", 9), ("MAX_POLICY_FILE_BYTES", 4)]
)
def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    monkeypatch.setattr(live_policy, limit, value)
    for name in ("a.cedar", "b.cedar"):
        (tmp_path / name).write_text("// 45")
    with pytest.raises(PolicyFileTooLarge):
        load_bundle(tmp_path, NOBODY)


def test_what_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "x.cedar").write_bytes(b"// ok\n// \xff\n")
    with pytest.raises(PolicyFileRefused, match=r"x\.cedar, line 2: byte 0xff"):
        load_bundle(tmp_path, NOBODY)
