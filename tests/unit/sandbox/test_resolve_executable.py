import os
import shutil
from pathlib import Path

import pytest

from palyra.sandbox.executables import ResolvedExecutable
from palyra.sandbox.path_walk import Kind
from palyra.sandbox.profile import SandboxProfile
from palyra.sandbox.resolve_executable import HostFiles, PathExecutables, guard_host


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A PATH with two programs and a workspace beside it."""
    for name in ("bin", "other", "ws"):
        (tmp_path / name).mkdir()
    shutil.copy("/bin/true", tmp_path / "bin" / "perl")
    shutil.copy("/bin/false", tmp_path / "bin" / "tool")
    return tmp_path


def lookup(place: Path) -> PathExecutables:
    return PathExecutables(f"{place}/bin:relative::{place}/other", str(place / "ws"))


def found(place: Path, command: str) -> ResolvedExecutable:
    described = lookup(place).find(command, str(place / "ws"))
    assert described is not None
    return described


def test_a_name_is_looked_up_on_path_only(place: Path) -> None:
    shutil.copy("/bin/true", place / "ws" / "own")
    assert lookup(place).find("own", str(place / "ws")) is None
    assert lookup(place).find("nosuch", str(place / "ws")) is None
    tool = found(place, "tool")
    assert (
        tool.on_path and tool.native and tool.executable and tool.found == f"{place}/bin/tool" and tool.shebang is None
    )
    own = found(place, "./own")
    assert own.in_workspace and not own.on_path


def test_what_is_not_executable_is_passed_over(place: Path) -> None:
    (place / "bin" / "thing").write_text("x")
    (place / "bin" / "dir").mkdir()
    assert lookup(place).find("thing", "/") is None and lookup(place).find("dir", "/") is None
    shutil.copy("/bin/true", place / "other" / "thing")
    assert found(place, "thing").found == f"{place}/other/thing"


def test_links_hard_links_and_copies_have_their_names(place: Path) -> None:
    ws = place / "ws"
    (ws / "soft").symlink_to("second")
    (ws / "second").symlink_to(place / "bin" / "perl")
    os.link(place / "bin" / "perl", ws / "hard")
    shutil.copy(place / "bin" / "perl", ws / "copy")
    assert found(place, "./soft").names[:3] == ("soft", "second", "perl")
    assert "perl" in found(place, "./hard").twins
    assert "perl" in found(place, "./copy").twins and "tool" not in found(place, "./copy").twins


def test_a_changed_directory_is_read_again(place: Path) -> None:
    executables = lookup(place)
    assert executables.find("tool", "/") is not None
    shutil.copy("/bin/cat", place / "bin" / "ruby")
    os.utime(place / "bin", ns=(1, 1))
    shutil.copy("/bin/cat", place / "ws" / "copy")
    described = executables.find("./copy", str(place / "ws"))
    assert described is not None and "ruby" in described.twins


def test_scripts_and_marks(place: Path) -> None:
    script = place / "ws" / "script"
    script.write_text("#! /usr/bin/env  -S python3\nprint()\n")
    script.chmod(0o755)
    assert found(place, "./script").shebang == "/usr/bin/env  -S python3" and not found(place, "./script").native
    changed = place / "ws" / "changed"
    changed.write_bytes(Path("/bin/true").read_bytes() + b"BusyBox v1.36")
    changed.chmod(0o755)
    assert found(place, "./changed").marks == {"busybox"}
    (place / "ws" / "empty").touch(0o755)
    assert not found(place, "./empty").native


def test_things_that_are_no_programs(place: Path) -> None:
    ws = place / "ws"
    os.mkfifo(ws / "pipe", 0o755)
    (ws / "loop").symlink_to("loop")
    (ws / "magic").symlink_to("/proc/self/exe")
    assert not found(place, "./pipe").executable
    assert found(place, "./loop").kind is Kind.LOOP
    assert found(place, "./magic").kind is Kind.MAGIC
    assert found(place, "./nosuch").kind is Kind.MISSING
    assert found(place, "./").kind is Kind.DIRECTORY


def test_looking_never_follows(tmp_path: Path) -> None:
    (tmp_path / "l").symlink_to("nowhere")
    (tmp_path / "f").touch()
    files = HostFiles()
    assert files.look(f"{tmp_path}/l").kind is Kind.LINK and files.look(f"{tmp_path}/l").target == "nowhere"
    assert files.look(f"{tmp_path}/f").kind is Kind.FILE and files.look(str(tmp_path)).kind is Kind.DIRECTORY
    assert files.look(f"{tmp_path}/f/x").kind is Kind.MISSING
    assert files.look(f"{tmp_path}/{'x' * 300}").kind is Kind.MISSING
    assert files.look("/a\0b").kind is Kind.MISSING


def test_the_sandboxs_own_path_is_used(tmp_path: Path) -> None:
    host = guard_host(SandboxProfile(workspace_root=str(tmp_path)), enabled=False)
    assert host.executables.find("ls", "/") is not None and not host.enabled
    empty = guard_host(SandboxProfile(workspace_root=str(tmp_path), env=(("PATH", str(tmp_path)),)))
    assert empty.executables.find("ls", "/") is None
