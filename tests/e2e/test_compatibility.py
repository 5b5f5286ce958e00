"""Ordinary tools inside Tier C, through ``palyra run``, as root and as an ordinary user, with no flag but one."""

import os
import shutil
import stat
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.daemon import PALYRA
from fakes.ordinary_user import NOBODY, as_ordinary_user
from fakes.sandboxed import Workshop

USERS = ("root", "ordinary") if os.geteuid() == 0 else ("ordinary",)


@pytest.fixture(params=USERS)
def workshop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workshop]:
    if request.param == "root" or os.geteuid() != 0:
        yield Workshop(tmp_path)
        return
    # pytest's own folders are closed to other users.
    base = Path(tempfile.mkdtemp(prefix="palyra-test-"))
    try:
        workshop = Workshop(base, palyra=(*as_ordinary_user(tmp_path), *PALYRA))
        for path in (base, *base.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        yield workshop
    finally:
        shutil.rmtree(base)


def give_away(workshop: Workshop) -> None:
    """What the test wrote belongs to whoever runs the sandbox."""
    owner = workshop.workspace.stat()
    for path in workshop.workspace.rglob("*"):
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def test_who_it_runs_as(workshop: Workshop) -> None:
    ran = workshop.free("sh", "-c", "touch made; id -u; cat /proc/self/uid_map")
    inside, mapped, outside, count = ran.out.split()
    owner = (workshop.workspace / "made").stat().st_uid
    assert inside == mapped != b"0" and count == b"1"
    assert owner == workshop.workspace.stat().st_uid and outside
    data = workshop.run("--", "ls", "-la", json=True).data
    assert data["backend"] == "bubblewrap" and "made" in data["stdout"]
    assert workshop.run("--tier", "b", "--", "ls").out == b"made\n"


@pytest.mark.promise("P-sandbox-works")
def test_git(workshop: Workshop) -> None:
    me = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.com")
    workshop.free("git", "init", "-q", "-b", "main")
    workshop.write("a.txt", "one\n")
    give_away(workshop)
    workshop.free("git", "add", "a.txt")
    workshop.free("git", *me, "commit", "-q", "-m", "First: 'quoted' \"text\"")
    workshop.write("a.txt", "two\n")
    diff = workshop.free("git", "diff").out
    assert b"-one" in diff and b"+two" in diff
    assert workshop.free("git", "status", "--porcelain").out == b" M a.txt\n"
    workshop.free("git", *me, "commit", "-q", "-am", "Second")
    assert workshop.free("git", "log", "--format=%s").out == b"Second\nFirst: 'quoted' \"text\"\n"
    workshop.free("git", *me, "checkout", "-q", "-b", "topic", "HEAD~1")
    assert (workshop.workspace / "a.txt").read_text() == "one\n"


@pytest.mark.promise("P-sandbox-works")
def test_make_gcc_and_the_program_made(workshop: Workshop) -> None:
    workshop.write("hello.c", '#include <stdio.h>\nint main(void) { puts("made and run"); return 0; }\n')
    workshop.write("Makefile", "all: hello\n\t./hello > said\n\nhello: hello.c\n\t$(CC) -O2 -o $@ $<\n")
    give_away(workshop)
    workshop.free("make", "-s", "-j2")
    assert (workshop.workspace / "said").read_text() == "made and run\n"
    assert workshop.run("--", "gcc", "-o", "again", "hello.c").status == 0
    assert workshop.run("--", "./again").out == b"made and run\n"


@pytest.mark.promise("P-sandbox-works")
def test_python_with_a_venv_and_a_local_wheel(workshop: Workshop) -> None:
    wheel(workshop.workspace / "wheels", "demo", "1.0", "def answer():\n    return 42\n")
    give_away(workshop)
    workshop.free("python3", "-m", "venv", "env")
    install = ("env/bin/pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--find-links", "wheels")
    workshop.free(*install, "demo")
    assert workshop.free("env/bin/python", "-c", "import demo; print(demo.answer())").out == b"42\n"


def test_a_test_runner(workshop: Workshop) -> None:
    case = "import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(1 + 1, {})\n"
    workshop.write("good/test_good.py", case.format(2))
    workshop.write("bad/test_bad.py", case.format(3))
    give_away(workshop)
    assert b"OK" in workshop.free("python3", "-m", "unittest", "discover", "-s", "good").err
    failed = workshop.run("--allow-interpreters", "--", "python3", "-m", "unittest", "discover", "-s", "bad")
    assert failed.status == 1 and b"AssertionError: 2 != 3" in failed.err


@pytest.mark.promise("P-sandbox-works")
def test_node_and_npm_with_a_local_package(workshop: Workshop) -> None:
    workshop.write("package.json", '{"name": "app", "version": "1.0.0", "scripts": {"hello": "node main.js"}}')
    workshop.write("pkg/package.json", '{"name": "pkg", "version": "1.0.0", "main": "index.js"}')
    workshop.write("pkg/index.js", "module.exports = () => 'from the package';\n")
    workshop.write("main.js", "console.log(require('pkg')());\n")
    give_away(workshop)
    workshop.free("npm", "install", "--offline", "--no-audit", "--no-fund", "./pkg")
    assert workshop.free("node", "main.js").out == b"from the package\n"
    assert b"from the package" in workshop.free("npm", "run", "-s", "hello").out


@pytest.mark.promise("P-sandbox-works")
def test_tar_sqlite_and_ssh_keygen(workshop: Workshop) -> None:
    workshop.write("tree/a b.txt", "content")
    give_away(workshop)
    workshop.free("tar", "czf", "a.tgz", "tree")
    shutil.rmtree(workshop.workspace / "tree")
    workshop.free("tar", "xzf", "a.tgz")
    assert (workshop.workspace / "tree" / "a b.txt").read_text() == "content"
    query = "create table t(x); insert into t values (1), (41); select sum(x) from t"
    assert workshop.free("sqlite3", "a.db", query).out == b"42\n"
    assert workshop.free("sqlite3", "a.db", stdin=b"select count(*) from t;\n").out == b"2\n"
    workshop.free("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", "key")
    assert (workshop.workspace / "key.pub").read_text().startswith("ssh-ed25519 ")
    assert (workshop.workspace / "key").stat().st_mode & 0o777 == 0o600


def wheel(folder: Path, name: str, version: str, source: str) -> None:
    """The least that pip takes for a wheel."""
    folder.mkdir()
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", source)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


def test_set_id_bits(workshop: Workshop) -> None:
    """No program may leave them behind; unpacking drops them, and what insists on them is told."""
    packed = workshop.workspace / "packed"
    (packed / "shared").mkdir(parents=True)
    (packed / "program").write_text("")
    (packed / "program").chmod(0o4755)
    (packed / "shared").chmod(0o2775)
    subprocess.run(["tar", "cf", "packed.tar", "packed"], cwd=workshop.workspace, check=True)
    shutil.rmtree(packed)
    workshop.run("--", "tar", "xf", "packed.tar", check=True)
    assert stat.S_IMODE((packed / "program").stat().st_mode) == 0o755
    assert not (packed / "shared").stat().st_mode & stat.S_ISGID
    insisting = workshop.run("--", "tar", "xpf", "packed.tar")
    assert insisting.status == 2 and b"Operation not permitted" in insisting.err
    assert not (packed / "program").stat().st_mode & (stat.S_ISUID | stat.S_ISGID)
    assert b"writable by group" in workshop.run("--", "git", "init", "--shared", "repository").err
    # A person's own choice for a directory is inherited.
    (packed / "shared").chmod(0o2775)
    workshop.run("--", "mkdir", "packed/shared/inner", check=True)
    assert (packed / "shared/inner").stat().st_mode & stat.S_ISGID


def test_git_reads_the_systems_settings_in_both_tiers(workshop: Workshop) -> None:
    for tier in ("b", "c"):
        assert workshop.run("--tier", tier, "--", "git", "--version", check=True).err == b""
