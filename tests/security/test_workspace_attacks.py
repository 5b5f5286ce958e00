"""Attacks on the file tools, performed.

Run as a program (``test_workspace_attacks.py DIR``) it performs the core of them as an ordinary user. Everything is
imported before the privileges go, so that a checkout which only root can read does not matter.
"""

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes import mounted_workspace as mounted
from fakes.workspace_harness import SECRET, call, everything_refused, harness, refused, swapping
from palyra.errors import PalyraError
from palyra.executors.files.spec import FILE_TOOLS
from palyra.workspace import limits
from palyra.workspace.root import open_workspace

pytestmark = pytest.mark.promise("P-files-inside")

NOBODY = 65534
RACED_TOOLS = ("fs.read", "fs.write", "fs.list")
RACE_CODES = {
    f"workspace.{reason}" for reason in ("escape", "busy", "changed", "exists", "not_found", "symlink", "not_directory")
}


def attack_links(base: Path) -> None:
    with harness(base) as (workspace, root, outside):
        (root / "sub").mkdir()
        links = {
            "absolute": str(outside / "secret"),
            "passwd": "/etc/passwd",
            "relative": "../outside/secret",
            "sub/deep": "../../outside/secret",
            "chain": "chain2",
            "chain2": "sub/chain3",
            "sub/chain3": "../relative",
            "dangling": "../outside/new",
            "absolute_dangling": str(outside / "new"),
            "inside_but_absolute": str(root / "sub"),
        }
        for name, target in links.items():
            (root / name).symlink_to(target)
        for name in links:
            everything_refused(workspace, name, {"workspace.escape", "workspace.symlink"})
        (root / "dir").symlink_to(outside)
        (root / "rdir").symlink_to("../outside")
        (root / "up").symlink_to("..")
        (root / "loop").symlink_to("loop")
        for path in ("dir/secret", "rdir/secret", "up/outside/secret", "inside_but_absolute/x", "loop/x"):
            everything_refused(workspace, path, {"workspace.escape", "workspace.symlink"})
        for path in ("dir/new", "rdir/a/new", "up/outside/new"):
            code = refused(workspace, "fs.write", path=path, content="pwned", create_parents=True)
            assert code == "workspace.escape"
        for path in ("dir", "rdir", "up"):
            assert refused(workspace, "fs.list", path=path) == "workspace.escape"
        listed = call(workspace, "fs.list", recursive=True)["entries"]
        assert not [entry for entry in listed if "secret" in entry["name"].split("/")]
        assert {entry["name"] for entry in listed if entry["type"] == "link"} == {*links, "dir", "rdir", "up", "loop"}
        assert call(workspace, "fs.search", query=SECRET)["matches"] == []


def attack_dangling_parents(base: Path) -> None:
    with harness(base) as (workspace, root, _outside):
        (root / "gone").symlink_to("../outside/newdir")
        (root / "here").symlink_to("not_there_yet")
        assert refused(workspace, "fs.write", path="gone/x", content="", create_parents=True) == "workspace.escape"
        code = refused(workspace, "fs.write", path="here/x/y", content="", create_parents=True)
        assert code in {"workspace.symlink", "workspace.not_directory"}
        assert sorted(os.listdir(root)) == ["gone", "here"]


def attack_spellings(base: Path) -> None:
    with harness(base) as (workspace, root, outside):
        (root / "sub").mkdir()
        for path in (
            "../outside/secret",
            "sub/../../outside/secret",
            "sub/..",
            "..",
            str(outside / "secret"),
            "/etc/passwd",
        ):
            everything_refused(workspace, path, {"workspace.bad_path"})
            assert refused(workspace, "fs.list", path=path) == "workspace.bad_path"
            with pytest.raises(PalyraError):
                FILE_TOOLS["fs.read"].spec.touches({"path": path})
        for path in ("", "a\0b", "\udc80", "//etc/passwd"):
            everything_refused(workspace, path, {"workspace.bad_path"})
        for path in ("x" * 4096, "a/" * 2100, "x" * 256, "é" * 128):
            everything_refused(workspace, path, {"workspace.path_too_long"})


def attack_hard_links(base: Path) -> None:
    with harness(base) as (workspace, root, outside):
        for mode in ("overwrite", "append"):
            os.link(outside / "secret", root / mode)
            call(workspace, "fs.write", path=mode, content="mine", mode=mode)
            assert (root / mode).stat().st_ino != (outside / "secret").stat().st_ino
        os.link(outside / "secret", root / "patched")
        call(workspace, "fs.patch", path="patched", edits=[{"old": "outside", "new": "inside"}])
        assert (root / "patched").read_text() == "the inside secret"


def attack_special_files(base: Path) -> None:
    with harness(base) as (workspace, root, _outside):
        os.mkfifo(root / "fifo")
        directory = os.open(root, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"/proc/self/fd/{directory}/socket")
            os.close(directory)
            (root / "link").symlink_to("fifo")
            for path in ("fifo", "socket"):
                everything_refused(workspace, path, {"workspace.not_regular"})
            assert refused(workspace, "fs.read", path="link") == "workspace.not_regular"
            assert call(workspace, "fs.search", query="x")["matches"] == []
            types = {entry["name"]: entry["type"] for entry in call(workspace, "fs.list")["entries"]}
            assert types == {"fifo": "fifo", "socket": "socket", "link": "link"}
    with open_workspace(Path("/dev"), ()) as devices:
        for name in ("null", "zero", "full", "tty"):
            everything_refused(devices, name, {"workspace.not_regular", "workspace.no_permission"})


def attack_magic_links(base: Path) -> None:
    secret = base / "secret"
    secret.write_text(SECRET)
    descriptor = os.open(secret, os.O_RDWR)
    try:
        with open_workspace(Path("/proc/self"), ()) as workspace:
            for path in (
                f"fd/{descriptor}",
                f"root{secret}",
                "cwd/x",
                "root/etc/passwd",
                "exe",
                f"task/{os.getpid()}/root/etc",
            ):
                everything_refused(workspace, path, {"workspace.symlink"})
    finally:
        os.close(descriptor)
    with harness(base) as (workspace, root, outside):
        (root / "magic").symlink_to("/proc/self/root" + str(outside / "secret"))
        (root / "cwd").symlink_to("/proc/self/cwd")
        for path in ("magic", "cwd/x"):
            everything_refused(workspace, path, {"workspace.escape", "workspace.symlink"})
    assert secret.read_text() == SECRET


def attack_protected_names(base: Path) -> None:
    with harness(base) as (workspace, root, _outside):
        hooks = root / ".git" / "hooks"
        hooks.mkdir(parents=True)
        (hooks / "pre-commit").write_text("old")
        (root / "vendor" / "lib").mkdir(parents=True)
        (root / "x").symlink_to(".git")
        (root / "y").symlink_to("x/hooks")
        (root / "vendor" / "z").symlink_to("../.git")
        (root / "real").mkdir()
        (root / "vendor" / ".git").symlink_to("../real")
        for path in (
            ".git/hooks/pre-commit",
            "./.git/./hooks//pre-commit",
            ".GIT/Hooks/pre-commit",
            ".git/hooks/deep/new",
            ".git/config",
            ".git\u200c/config",
            ".ｇit/config",
            ".git./config",
            ".git /config",
            "x/hooks/pre-commit",
            "x/config",
            "y/pre-commit",
            "vendor/z/hooks/pre-commit",
            "vendor/.git/hooks/new",
            "vendor/lib/.git/hooks/new",
            "vendor/lib/.git",
            "vendor/lib/.github",
            ".env",
            ".env.local",
            ".ENV",
            "vendor/.envrc",
            ".env/inside",
            ".github/workflows/ci.yml",
        ):
            for mode in ("create", "overwrite", "append"):
                code = refused(workspace, "fs.write", path=path, content="pwned", mode=mode, create_parents=True)
                assert code == "workspace.protected_name", path
            code = refused(workspace, "fs.patch", path=path, edits=[{"old": "old", "new": "pwned"}])
            assert code in {"workspace.protected_name", "workspace.not_found"}, path
        assert (hooks / "pre-commit").read_text() == "old"
        assert sorted(os.listdir(root / ".git")) == ["hooks"]
        assert os.listdir(root / "real") == []
        assert os.listdir(root / "vendor" / "lib") == []
        call(workspace, "fs.write", path=".git/info/exclude", content="fine", create_parents=True)
        call(workspace, "fs.write", path=".gitignore", content="fine")


def attack_swapped_directory(base: Path) -> None:
    """A directory and a link to the outside change places, atomically, while we read and write through the name."""
    with harness(base) as (workspace, root, _outside):
        (root / "d").mkdir()
        (root / "d" / "secret").write_text("inside 0")
        (root / "l").symlink_to("../outside")
        (root / "alias").symlink_to("d/../d")
        seen: Counter[str] = Counter()

        def attempt(name: str, **arguments: object) -> None:
            try:
                result = call(workspace, name, **arguments)
            except PalyraError as error:
                assert error.code in RACE_CODES, error
                seen[f"{name} refused"] += 1
                return
            seen[f"{name} done"] += 1
            assert result.get("content", "inside").startswith("inside")
            assert not result.get("matches")
            assert all(entry["name"].startswith(("secret", "n", ".palyra-")) for entry in result.get("entries", ()))

        with swapping((root / "d", root / "l")) as swaps:
            turn = 0
            while swaps() < 5000 or min(seen[f"{n} {o}"] for n in RACED_TOOLS for o in ("done", "refused")) < 100:
                turn += 1
                attempt("fs.read", path="d/secret")
                attempt("fs.read", path="alias/secret")
                attempt("fs.write", path="d/secret", content=f"inside {turn}", mode="overwrite")
                attempt("fs.write", path=f"d/new{turn % 50}", content="inside", mode="overwrite")
                attempt("fs.write", path=f"d/n{turn}/m", content="inside", create_parents=True)
                attempt("fs.list", path="d")
                if turn % 20 == 0:
                    attempt("fs.search", query=SECRET)


def attack_swapped_file(base: Path) -> None:
    """The final name changes between a file, a link to the outside and a pipe that would block a reader for ever."""
    seen: Counter[str] = Counter()
    swapped = rounds = 0
    while swapped < 5000 or min(seen["read"], seen["workspace.escape"], seen["workspace.not_regular"]) < 100:
        # A write may replace the link or the pipe for good, in the moment between its last look and its rename.
        swapped += _swap_for_a_second(base / str(rounds), seen)
        rounds += 1


def _swap_for_a_second(base: Path, seen: "Counter[str]") -> int:
    base.mkdir()
    until = time.monotonic() + 1
    with harness(base) as (workspace, root, _outside):
        (root / "link").symlink_to("../outside/secret")
        os.mkfifo(root / "pipe")
        (root / "f").write_text("inside")
        with swapping((root / "f", root / "link"), (root / "f", root / "pipe")) as swaps:
            while time.monotonic() < until:
                try:
                    assert call(workspace, "fs.read", path="f")["content"] == "inside"
                    seen["read"] += 1
                    call(workspace, "fs.write", path="f", content="inside", mode="overwrite")
                except PalyraError as error:
                    seen[error.code] += 1
                    assert error.code in {*RACE_CODES, "workspace.not_regular"}, error
            return swaps()


def attack_odd_names(base: Path) -> None:
    with harness(base) as (workspace, root, _outside):
        names = [
            "a\nb",
            "\x1b[31mred",
            "*",
            "[a]",
            "-rf",
            "a b",
            "\\",
            "~",
            "$(id)",
            "x" * 255,
            "\u202egpj.exe",
            "c:\\d",
        ]
        for name in names:
            written = call(workspace, "fs.write", path=name, content="text")
            assert call(workspace, "fs.read", path=name)["content"] == "text"
            assert written["path"].isprintable()
        (root / os.fsdecode(b"\xff\xfe")).write_text("text")
        entries = call(workspace, "fs.list")["entries"]
        assert len(entries) == len(names) + 1
        assert all(entry["name"].isprintable() for entry in entries)
        assert {e["name"] for e in entries if e["escaped"]} == {
            "a\\x0ab",
            "\\x1b[31mred",
            "\\u202egpj.exe",
            "\\xff\\xfe",
        }
        assert len(call(workspace, "fs.search", query="text")["matches"]) == len(names) + 1
        deep = "/".join(["d" * 20] * 190)
        assert len(deep) < 4096
        call(workspace, "fs.write", path=deep + "/f", content="deep", create_parents=True)
        assert call(workspace, "fs.read", path=deep + "/f")["content"] == "deep"
        assert call(workspace, "fs.list", recursive=True)["truncated"]


CORE_ATTACKS: tuple[Callable[[Path], None], ...] = (
    attack_links,
    attack_dangling_parents,
    attack_spellings,
    attack_hard_links,
    attack_special_files,
    attack_magic_links,
    attack_protected_names,
    attack_swapped_directory,
    attack_swapped_file,
    attack_odd_names,
)


@pytest.mark.parametrize("attack", CORE_ATTACKS, ids=lambda attack: attack.__name__)
def test_attack(attack: Callable[[Path], None], tmp_path: Path) -> None:
    attack(tmp_path)


def test_attacks_as_an_ordinary_user() -> None:
    run_elsewhere(__file__)


@pytest.mark.parametrize("what", ["mounts", "full"])
def test_attacks_in_a_mount_namespace(what: str) -> None:
    own_user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    run_elsewhere(mounted.__file__, what, prefix=("unshare", *own_user, "--mount", "--propagation", "private"))


def test_a_sparse_file_of_terabytes_is_read_in_bounds(tmp_path: Path) -> None:
    with harness(tmp_path) as (workspace, root, _outside):
        with (root / "sparse").open("wb") as file:
            file.truncate(2**43)
        read = call(workspace, "fs.read", path="sparse", encoding="base64", offset=2**42)
        assert (read["bytes"], read["truncated"], read["sha256_of"]) == (limits.DEFAULT_READ_BYTES, True, "part")
        assert read["sha256"] == hashlib.sha256(bytes(limits.DEFAULT_READ_BYTES)).hexdigest()
        assert call(workspace, "fs.search", query="x")["files_skipped"] == 1
        assert refused(workspace, "fs.write", path="sparse", content="x", mode="append") == "workspace.file_too_large"
        code = refused(workspace, "fs.patch", path="sparse", edits=[{"old": "x", "new": "y"}])
        assert code == "workspace.file_too_large"


@pytest.mark.promise("P-limits")
def test_a_regular_expression_bomb_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with harness(tmp_path) as (workspace, root, _outside):
        (root / "a").write_text("found aab\n")
        (root / "b").write_text("a" * 40 + "!\n")
        monkeypatch.setattr(limits, "SEARCH_SECONDS", 1.5)
        result = call(workspace, "fs.search", query="(a|a)+b", regex=True)
        assert result["stopped_by"] == "time"
        assert [match["path"] for match in result["matches"]] == ["a"]
        monkeypatch.setattr(limits, "SEARCH_SECONDS", 3600.0)
        cancelled = threading.Event()
        timer = threading.Timer(0.3, cancelled.set)
        timer.start()
        assert refused(workspace, "fs.search", cancelled, query="(a|a)+b", regex=True) == "workspace.cancelled"
        timer.join()


@pytest.mark.promise("P-files-protected")
def test_thousands_of_protected_names_still_protect(tmp_path: Path) -> None:
    names = tuple(f"secret{number}/key*" for number in range(20_000)) + tuple(f"*.k{number}" for number in range(500))
    with open_workspace(tmp_path, names) as workspace:
        for path in ("a/SECRET19999/Keys/x", "secret0/key", "b/x.K499"):
            code = refused(workspace, "fs.write", path=path, content="", create_parents=True)
            assert code == "workspace.protected_name"
        call(workspace, "fs.write", path="secret20000/key", content="", create_parents=True)


def run_elsewhere(program: str, *arguments: str, prefix: tuple[str, ...] = ()) -> None:
    base = Path(tempfile.mkdtemp(prefix="palyra-"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    try:
        if program == __file__ and os.geteuid() == 0:
            os.chown(base, NOBODY, NOBODY)
        argv = [*prefix, sys.executable, program, *arguments, str(base)]
        done = subprocess.run(argv, capture_output=True, text=True, env=environment)
        assert (done.returncode, done.stdout) == (0, "blocked\n"), done.stderr
    finally:
        shutil.rmtree(base)


def as_ordinary_user(base: Path) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    assert os.geteuid() != 0
    for attack in CORE_ATTACKS:
        (base / attack.__name__).mkdir()
        attack(base / attack.__name__)
    with harness(base) as (workspace, root, _outside):
        (root / "mine").write_text("mine")
        (root / "mine").chmod(0)
        assert refused(workspace, "fs.read", path="mine") == "workspace.no_permission"
        root.chmod(0o500)
        assert refused(workspace, "fs.write", path="new", content="") == "workspace.no_permission"
        root.chmod(0o700)


if __name__ == "__main__":
    as_ordinary_user(Path(sys.argv[1]))
    print("blocked")
