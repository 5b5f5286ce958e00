import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.guard_harness import DictFiles
from palyra.sandbox.domain.process_run import ExecutableDenied, SpawnFailed
from palyra.sandbox.domain.profile import SandboxProfile
from palyra.sandbox.guards import executables
from palyra.sandbox.guards.checks import build_guard_host
from palyra.sandbox.guards.executables import (
    HostFiles,
    Kind,
    PathExecutables,
    ResolvedExecutable,
    find_executable,
    is_beneath,
    join,
    refuse_unlisted_executable,
    walk,
)
from palyra.sandbox.limits import MAX_LINKS

LS = ResolvedExecutable(typed="ls", found="/usr/bin/ls", real="/usr/bin/ls", kind=Kind.FILE, on_path=True)
OWN = ResolvedExecutable(typed="./ls", found="/ws/ls", real="/ws/ls", kind=Kind.FILE, in_workspace=True)
LINKED = ResolvedExecutable(
    typed="vi", found="/usr/bin/vi", real="/usr/bin/vim.basic", passed=("/usr/bin/vi",), kind=Kind.FILE, on_path=True
)
FOREIGN = ResolvedExecutable(typed="/home/u/x", found="/home/u/x", real="/home/u/x", kind=Kind.FILE)


class One:
    def __init__(self, found: ResolvedExecutable | None) -> None:
        self._found = found

    def find(self, command: str, cwd: str) -> ResolvedExecutable | None:
        return self._found


@pytest.mark.parametrize(
    ("found", "allowed"),
    [
        (LS, None),
        (OWN, None),
        (LS, ("ls",)),
        (LS, ("/usr/bin/ls",)),
        (OWN, ("/ws/ls",)),
        (LINKED, ("vi",)),
        (LINKED, ("/usr/bin/vim.basic",)),
        (FOREIGN, ("/home/u/x",)),
    ],
)
def test_allowed(found: ResolvedExecutable, allowed: tuple[str, ...] | None) -> None:
    refuse_unlisted_executable(found, allowed)


@pytest.mark.parametrize(
    ("found", "allowed"),
    [
        (LS, ()),
        (LS, ("cat", "/bin/ls")),
        (OWN, ("ls",)),
        (LINKED, ("vim.basic",)),
        (FOREIGN, None),
        (FOREIGN, ("x",)),
    ],
)
def test_refused(found: ResolvedExecutable, allowed: tuple[str, ...] | None) -> None:
    with pytest.raises(ExecutableDenied) as refusal:
        refuse_unlisted_executable(found, allowed)
    assert refusal.value.details["argument"] == "command"


def test_a_magic_link_is_refused_even_if_listed() -> None:
    magic = ResolvedExecutable(typed="/proc/self/exe", found="/proc/self/exe", real="/proc/self/exe", kind=Kind.MAGIC)
    with pytest.raises(ExecutableDenied):
        refuse_unlisted_executable(magic, ("/proc/self/exe",))


def test_a_tool_root_is_a_place_for_programs() -> None:
    refuse_unlisted_executable(FOREIGN, None, ("/usr", "/home/u"))


@pytest.mark.parametrize("kind", [Kind.MISSING, Kind.DIRECTORY, Kind.UNREADABLE, Kind.LOOP])
def test_what_cannot_be_executed_is_told(kind: Kind) -> None:
    found = ResolvedExecutable(typed="x", found="/ws/x", real="/ws/x", kind=kind)
    with pytest.raises(SpawnFailed):
        find_executable(One(found), "x", "/ws")
    with pytest.raises(SpawnFailed):
        find_executable(One(None), "x", "/ws")


def test_names_cover_links_and_twins() -> None:
    both = ResolvedExecutable(
        typed="./a", found="/ws/a", passed=("/ws/a", "/ws/b"), real="/ws/c", kind=Kind.FILE, twins=frozenset({"perl"})
    )
    assert both.names == ("a", "b", "c", "perl")


FILES = DictFiles(
    {
        "/ws/f": None,
        "/ws/d/": None,
        "/ws/up": "..",
        "/ws/out": "/etc",
        "/ws/rel": "d/../f",
        "/ws/loop": "loop",
        "/ws/self": "/proc/self",
        "/ws/d/back": "../f",
        "/etc/passwd": None,
        "/dev/stdin": "/proc/self/fd/0",
    }
)


@pytest.mark.parametrize(
    ("path", "real", "kind"),
    [
        ("/ws/f", "/ws/f", Kind.FILE),
        ("/ws//./d/", "/ws/d", Kind.DIRECTORY),
        ("/ws/rel", "/ws/f", Kind.FILE),
        ("/ws/d/back", "/ws/f", Kind.FILE),
        ("/ws/out/passwd", "/etc/passwd", Kind.FILE),
        ("/ws/up/etc/passwd", "/etc/passwd", Kind.FILE),
        ("/ws/out/..", "/", Kind.DIRECTORY),
        ("/ws/no/such", "/ws/no/such", Kind.MISSING),
        ("/ws/no/../../etc", "/etc", Kind.MISSING),
        ("/ws/f/x", "/ws/f/x", Kind.MISSING),
        ("/../../ws/f", "/ws/f", Kind.FILE),
        ("/ws/self/exe", "/proc/self/exe", Kind.MAGIC),
        ("/proc/1/root/etc", "/proc/1/root/etc", Kind.MAGIC),
        ("/dev/fd/3", "/dev/fd/3", Kind.MAGIC),
        ("/", "/", Kind.DIRECTORY),
    ],
)
def test_ends_where_the_kernel_would(path: str, real: str, kind: Kind) -> None:
    walked = walk(path, FILES)
    assert (walked.real, walked.kind) == (real, kind)


def test_links_that_never_end_are_told() -> None:
    assert walk("/ws/loop", FILES).kind is Kind.LOOP
    chain = DictFiles({f"/l{number}": f"l{number + 1}" for number in range(MAX_LINKS + 1)})
    assert walk("/l0", chain).kind is Kind.LOOP
    assert walk("/l2", chain).kind is Kind.MISSING


def test_fixed_devices_end_the_walk() -> None:
    assert walk("/dev/stdin", FILES).kind is Kind.MAGIC
    assert walk("/dev/stdin", FILES, ends=frozenset({"/dev/stdin"})).real == "/dev/stdin"
    assert walk("/dev/stdin/x", FILES, ends=frozenset({"/dev/stdin"})).kind is Kind.MAGIC


def test_the_links_on_the_way_are_told() -> None:
    assert walk("/ws/up/ws/rel", FILES).passed == ("/ws/up", "/ws/rel")


def test_joining_and_lying_beneath() -> None:
    assert join("/ws", "a") == "/ws/a" and join("/ws", "/a") == "/a" and join("/", "a") == "/a"
    assert is_beneath("/ws", "/ws") and is_beneath("/ws/a", "/ws") and not is_beneath("/wsx", "/ws")
    assert is_beneath("/x", "/")


NAMES = st.sampled_from(["a", "b", "l", "m", "..", ".", "no"])


@settings(max_examples=150)
@given(parts=st.lists(NAMES, min_size=1, max_size=7))
def test_agrees_with_the_kernel_wherever_the_path_exists(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str]
) -> None:
    root = tmp_path_factory.getbasetemp() / "walked"
    if not root.exists():
        (root / "a" / "b").mkdir(parents=True)
        (root / "a" / "l").symlink_to("../b")
        (root / "b").mkdir()
        (root / "b" / "m").symlink_to(root / "a")
        (root / "l").symlink_to("a/b")
    path = f"{root}/{'/'.join(parts)}"
    walked = walk(path, HostFiles())
    if Path(path).exists():
        assert walked.real == os.path.realpath(path) and walked.kind is Kind.DIRECTORY
    else:
        assert walked.kind is Kind.MISSING


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
    host = build_guard_host(SandboxProfile(workspace_root=str(tmp_path)), enabled=False)
    assert host.executables.find("ls", "/") is not None and not host.enabled
    empty = build_guard_host(SandboxProfile(workspace_root=str(tmp_path), env=(("PATH", str(tmp_path)),)))
    assert empty.executables.find("ls", "/") is None


@pytest.fixture
def system(place: Path, monkeypatch: pytest.MonkeyPatch) -> PathExecutables:
    """A lookup whose PATH counts as the system's."""
    monkeypatch.setattr(executables, "SYSTEM_ROOTS", (str(place),))
    return PathExecutables(f"{place}/other:{place}/bin:{place}/missing", str(place / "ws"))


def _in_front(place: Path) -> None:
    shutil.copy("/bin/true", place / "other" / "tool")


def _written_over(place: Path) -> None:
    before = (place / "bin" / "tool").stat()
    (place / "bin" / "tool").write_bytes(b"#!/usr/bin/perl\n")
    # Whoever may write to it may also set these back.
    os.utime(place / "bin" / "tool", ns=(before.st_atime_ns, before.st_mtime_ns))


def _another_name(place: Path) -> None:
    before = (place / "bin").stat()
    os.link(place / "bin" / "tool", place / "bin" / "perl5")
    os.utime(place / "bin", ns=(before.st_atime_ns, before.st_mtime_ns))


def _missing_directory(place: Path) -> None:
    (place / "missing").mkdir()
    os.link(place / "bin" / "tool", place / "missing" / "perl5")


@pytest.mark.parametrize("change", [_in_front, _written_over, _another_name, _missing_directory])
def test_every_change_that_matters_is_seen(
    place: Path, system: PathExecutables, change: Callable[[Path], None]
) -> None:
    before = system.find("tool", "/")
    change(place)
    after = system.find("tool", "/")
    assert after == PathExecutables(f"{place}/other:{place}/bin:{place}/missing", str(place / "ws")).find("tool", "/")
    assert after != before


def test_a_link_that_leads_elsewhere_and_a_program_that_went_are_seen(place: Path, system: PathExecutables) -> None:
    (place / "bin" / "linked").symlink_to(place / "ws" / "middle")
    (place / "ws" / "middle").symlink_to(place / "bin" / "tool")
    before = system.find("linked", "/")
    (place / "ws" / "middle").unlink()
    (place / "ws" / "middle").symlink_to(place / "bin" / "perl")
    after = system.find("linked", "/")
    assert before is not None and after is not None
    assert (before.real, after.real) == (f"{place}/bin/tool", f"{place}/bin/perl")
    (place / "bin" / "perl").unlink()
    assert system.find("linked", "/") is None
