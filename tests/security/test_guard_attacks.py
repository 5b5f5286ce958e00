"""Attacks on the guards with real files: every disguise of an interpreter, and programs that run programs.

Where an attack can be carried out here, it is: the test first shows that the command really runs a program when nobody
looks, then that the guard refuses it, so that no test passes because the attack never worked.
"""

import contextlib
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes.guard_harness import GuardHarness
from palyra.errors import PalyraError
from palyra.sandbox.domain.process_run import ExecutableDenied, InterpreterDenied, WorkspaceScopeDenied
from palyra.sandbox.domain.profile import EgressEnforcementMode

DASH = os.path.realpath("/bin/sh")
PERL = "/usr/bin/perl"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    root.mkdir()
    (root / "f").write_text("line\n")
    return root


def refused(harness: GuardHarness, command: str, *args: str, **more: Any) -> PalyraError:
    with pytest.raises((InterpreterDenied, ExecutableDenied)) as caught:
        harness.check(command, *args, **more)
    return caught.value


def runs(root: Path, command: str, *args: str, env: dict[str, str] | None = None, stdin: bytes = b"") -> None:
    """Carries the attack out without any guard, and sees that it ran ``touch pwned``."""
    marker = root / "pwned"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(root), **(env or {})}
    subprocess.run(
        [command, *args], cwd=root, env=environment, input=stdin, capture_output=True, check=False, timeout=20
    )
    assert marker.exists(), f"{command} {args} did not run the program: the attack is not one"
    marker.unlink()


def installed(*names: str) -> list[str]:
    return [name for name in names if shutil.which(name, path="/usr/bin:/bin")]


@pytest.mark.parametrize(
    "name", installed("sh", "bash", "dash", "rbash", "perl", "awk", "mawk", "python3", "perl5.36.0")
)
def test_interpreters_by_name_path_and_odd_path(workspace: Path, name: str) -> None:
    harness = GuardHarness(workspace)
    for spelled in (name, f"/usr/bin/{name}", f"/bin/{name}", f"/usr/bin/../bin/./{name}", f"//usr//bin//{name}"):
        error = refused(harness, spelled)
        assert error.code == "sandbox.interpreter_denied" and error.details["argument"] == "command"


class TestDisguises:
    def test_a_link_and_a_chain_of_links(self, workspace: Path) -> None:
        (workspace / "tool").symlink_to(DASH)
        (workspace / "one").symlink_to("two")
        (workspace / "two").symlink_to("tool")
        for name in ("tool", "one"):
            runs(workspace, f"./{name}", "-c", "touch pwned")
            assert DASH in refused(GuardHarness(workspace), f"./{name}", "-c", "touch pwned").message

    def test_a_link_to_the_directory(self, workspace: Path) -> None:
        (workspace / "d").symlink_to("/usr/bin")
        runs(workspace, "./d/perl", "-e", "system 'touch pwned'")
        refused(GuardHarness(workspace), "./d/perl", "-e", "1")

    def test_a_relative_link_that_climbs_out(self, workspace: Path) -> None:
        (workspace / "tool").symlink_to(os.path.relpath(PERL, workspace))
        refused(GuardHarness(workspace), "./tool")

    def test_a_copy_under_another_name(self, workspace: Path) -> None:
        for original in (DASH, PERL):
            shutil.copy(original, workspace / "tool")
            refused(GuardHarness(workspace), "./tool", "-c", "touch pwned")
            refused(GuardHarness(workspace), str(workspace / "tool"))
        shutil.copy(DASH, workspace / "tool")
        runs(workspace, "./tool", "-c", "touch pwned")

    def test_a_copy_that_was_changed_by_a_byte(self, workspace: Path) -> None:
        shutil.copy("/bin/bash", workspace / "tool")
        with (workspace / "tool").open("ab") as changed:
            changed.write(b"\0")
        runs(workspace, "./tool", "-c", "touch pwned")
        refused(GuardHarness(workspace), "./tool", "-c", "touch pwned")

    def test_a_changed_copy_that_pretends_to_be_a_harmless_applet(self, workspace: Path) -> None:
        shutil.copy(PERL, workspace / "ls")
        with (workspace / "ls").open("ab") as changed:
            changed.write(b"BusyBox v1.36.1")
        runs(workspace, "./ls", "-e", "system 'touch pwned'")
        refused(GuardHarness(workspace), "./ls", "-e", "1")

    def test_a_copy_of_a_program_that_runs_programs(self, workspace: Path) -> None:
        shutil.copy("/usr/bin/env", workspace / "tool")
        runs(workspace, "./tool", "touch", "pwned")
        refused(GuardHarness(workspace), "./tool", "touch", "pwned")

    def test_the_interpreter_that_runs_this_daemon(self, workspace: Path) -> None:
        shutil.copy(os.path.realpath(sys.executable), workspace / "tool")
        refused(GuardHarness(workspace), "./tool", "-c", "1")

    def test_a_hard_link(self, tmp_path: Path, workspace: Path) -> None:
        """The PATH is one of our own, so that the link is possible for every user and on every disk."""
        own = tmp_path / "bin"
        own.mkdir()
        shutil.copy(DASH, own / "dash")
        os.link(own / "dash", workspace / "tool")
        harness = GuardHarness(workspace, env=(("PATH", f"{own}:/usr/bin"),))
        runs(workspace, "./tool", "-c", "touch pwned")
        assert os.stat(own / "dash").st_ino == os.stat(workspace / "tool").st_ino
        refused(harness, "./tool", "-c", "touch pwned")

    @pytest.mark.parametrize(
        "first_line",
        [
            "#!/bin/sh",
            "#! /bin/sh -e",
            "#!/usr/bin/env sh",
            "#!/usr/bin/env -S perl -w",
            "#!/usr/bin/sed -f",
            "#!./tool",
        ],
    )
    def test_a_script(self, workspace: Path, first_line: str) -> None:
        (workspace / "job").write_text(f"{first_line}\ntouch pwned\n")
        (workspace / "job").chmod(0o755)
        if first_line.endswith(("sh", "-e")):
            runs(workspace, "./job")
        assert first_line[2:].strip() in refused(GuardHarness(workspace), "./job").message

    def test_a_script_under_the_name_of_a_harmless_one(self, workspace: Path) -> None:
        (workspace / "egrep").write_text("#!/bin/sh\ntouch pwned\n")
        (workspace / "egrep").chmod(0o755)
        runs(workspace, "./egrep")
        refused(GuardHarness(workspace), "./egrep")
        GuardHarness(workspace).check("egrep", "x", "f")

    def test_a_file_without_a_first_line_that_shells_would_run(self, workspace: Path) -> None:
        (workspace / "job").write_text("touch pwned\n")
        (workspace / "job").chmod(0o755)
        refused(GuardHarness(workspace), "./job")

    def test_the_loader(self, workspace: Path) -> None:
        (loader,) = {os.path.realpath(path) for path in Path("/lib64").glob("ld-*.so*")} or {""}
        if not loader:
            (loader,) = {os.path.realpath(path) for path in Path("/lib").glob("ld-*.so*")}
        runs(workspace, loader, DASH, "-c", "touch pwned")
        refused(GuardHarness(workspace), loader, DASH, "-c", "touch pwned")
        (workspace / "tool").symlink_to(loader)
        refused(GuardHarness(workspace), "./tool", DASH)
        shutil.copy(loader, workspace / "copied")
        refused(GuardHarness(workspace), "./copied", DASH)

    @pytest.mark.parametrize(
        "path", ["/proc/self/exe", "/proc/1/root/bin/ls", "/dev/fd/3", "/proc/self/fd/0", "/proc/thread-self/exe"]
    )
    def test_kernel_links(self, workspace: Path, path: str) -> None:
        refused(GuardHarness(workspace), path)
        (workspace / "tool").symlink_to(path)
        refused(GuardHarness(workspace), "./tool")
        assert refused(GuardHarness(workspace, allow_interpreters=True), "./tool").code == "sandbox.executable_denied"

    def test_an_applet_of_a_binary_with_many_names(self, tmp_path: Path, workspace: Path) -> None:
        """A stand-in for busybox: one file, many links, and the name decides."""
        own = tmp_path / "bin"
        own.mkdir()
        shutil.copy("/bin/true", own / "busybox")
        for applet in ("ls", "sh", "awk", "env", "cat"):
            os.link(own / "busybox", own / applet)
            (workspace / f"my-{applet}").symlink_to(own / "busybox")
        (workspace / "sh").symlink_to(own / "busybox")
        harness = GuardHarness(workspace, env=(("PATH", f"{own}"),), tool_roots=(str(own),))
        for harmless in (("ls", "-la"), ("cat", "f"), ("busybox", "ls"), ("busybox", "--list")):
            assert harness.check(*harmless).argv[0] == harmless[0].encode()
        for attack in (
            ("sh",),
            ("awk", "x"),
            ("busybox", "sh"),
            ("busybox", "awk"),
            ("./sh", "-c", "id"),
            ("env", "ls"),
        ):
            refused(harness, *attack)

    def test_a_program_outside_the_workspace_and_the_system(self, tmp_path: Path, workspace: Path) -> None:
        shutil.copy("/bin/true", tmp_path / "planted")
        assert refused(GuardHarness(workspace), str(tmp_path / "planted")).code == "sandbox.executable_denied"
        assert refused(GuardHarness(workspace), "../planted").code == "sandbox.executable_denied"

    @pytest.mark.parametrize("name", ["own", "task", "watch", "import"])
    def test_a_harmless_program_of_the_workspace_runs(self, workspace: Path, name: str) -> None:
        shutil.copy("/bin/true", workspace / name)
        assert GuardHarness(workspace).check(f"./{name}", "-c").executable.in_workspace


EXEC_RULES: list[tuple[tuple[str, ...], dict[str, str]]] = [
    (("env", "touch", "pwned"), {}),
    (("env", "-S", "touch pwned"), {}),
    (("env", "-i", "A=1", "/usr/bin/touch", "pwned"), {}),
    (("env", "FOO=1", "xargs", "-0", "touch", "pwned"), {}),
    (("xargs", "touch", "pwned"), {}),
    (("find", "f", "-exec", "touch", "pwned", ";"), {}),
    (("find", "f", "-execdir", "touch", "pwned", ";"), {}),
    (("nice", "touch", "pwned"), {}),
    (("nohup", "touch", "pwned"), {}),
    (("timeout", "5", "touch", "pwned"), {}),
    (("stdbuf", "-o0", "touch", "pwned"), {}),
    (("setsid", "-w", "touch", "pwned"), {}),
    (("flock", "f", "touch", "pwned"), {}),
    (("tar", "-cf", "a.tar", "--checkpoint=1", "--checkpoint-action=exec=touch pwned", "f"), {}),
    (("tar", "-cf", "a.tar", "--checkpoint=1", "--checkpoint-act=exec=touch pwned", "f"), {}),
    (("tar", "-cf", "a.tar", "-I", "touch pwned; cat", "f"), {}),
    (("tar", "-cI./compress", "-f", "a.tar", "f"), {}),
    (("tar", "cIf", "./compress", "a.tar", "f"), {}),
    (("sed", "-n", "1e touch pwned", "f"), {}),
    (("sed", "s/.*/touch pwned/e", "f"), {}),
    (("sed", "-ne", "tx e touch pwned", "-e:x", "f"), {}),
    (("sed", "-n", "-f", "script.sed", "f"), {}),
    (("sort", "-S1k", "--compress-program=./compress", "big"), {}),
    (("split", "--filter=touch pwned", "f"), {}),
    (("git", "-c", "alias.x=!touch pwned", "x"), {}),
    (("git", "-c", "core.fsmonitor=touch pwned; true", "status"), {}),
    (("git", "clone", "-u", "touch pwned; false", "./repo", "y"), {}),
    (("git", "ls-remote", "--upload-p=touch pwned; false", "./repo"), {}),
    (("git", "-c", "protocol.ext.allow=always", "ls-remote", "ext::touch pwned"), {}),
    (("git", "grep", "-O./compress", "line"), {}),
    (
        ("git", "status"),
        {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": "touch pwned; true"},
    ),
    (("git", "diff", "--no-index", "f", "big"), {"GIT_EXTERNAL_DIFF": "touch pwned;:"}),
    (("git", "ls-remote", "ssh://localhost/x"), {"GIT_SSH_COMMAND": "touch pwned;:"}),
    (("tar", "-cf", "a.tar", "f"), {"TAR_OPTIONS": "--checkpoint=1 --checkpoint-action=exec='touch pwned'"}),
]


@pytest.fixture
def armed(workspace: Path) -> Path:
    """What the attacks need: a repository, a large file, a script for sed, a program that leaves its mark."""
    git = {"PATH": "/usr/bin:/bin", "HOME": str(workspace), "GIT_CONFIG_NOSYSTEM": "1"}
    for place in (workspace, workspace / "repo"):
        subprocess.run(["git", "init", "-q", str(place)], check=True, env=git, capture_output=True)
    subprocess.run(["git", "add", "f"], cwd=workspace, check=True, env=git, capture_output=True)
    (workspace / "big").write_text("".join(f"{number}\n" for number in range(4_000)))
    (workspace / "script.sed").write_text("1e touch pwned\n")
    (workspace / "compress").write_text("#!/bin/sh\ntouch pwned\nexec cat\n")
    (workspace / "compress").chmod(0o755)
    return workspace


@pytest.mark.parametrize(("argv", "env"), EXEC_RULES, ids=[" ".join((*argv, *env)) for argv, env in EXEC_RULES])
def test_programs_that_run_programs(armed: Path, argv: tuple[str, ...], env: dict[str, str]) -> None:
    runs(armed, *argv, env=env)
    error = refused(GuardHarness(armed), argv[0], *argv[1:], env=env)
    assert error.code == "sandbox.interpreter_denied" and error.details["argument"]
    # Allowed, it is the very same command.
    assert GuardHarness(armed, allow_interpreters=True).check(argv[0], *argv[1:], env=env).argv[0] == argv[0].encode()


def test_a_library_that_is_loaded_before_all_others(workspace: Path) -> None:
    for allow in (False, True):
        with pytest.raises(InterpreterDenied):
            GuardHarness(workspace, allow_interpreters=allow).check("ls", env={"LD_PRELOAD": "./x.so"})


def test_startup_files_of_shells(workspace: Path) -> None:
    (workspace / "rc").write_text("touch pwned\n")
    runs(workspace, "/bin/bash", "-c", ":", env={"BASH_ENV": "./rc"})
    with pytest.raises(InterpreterDenied):
        GuardHarness(workspace).check("ls", env={"BASH_ENV": "./rc"})


class TestWaysOutOfTheWorkspace:
    def test_links(self, tmp_path: Path, workspace: Path) -> None:
        (tmp_path / "secret").write_text("secret")
        (workspace / "a").symlink_to("../secret")
        (workspace / "b").symlink_to("a")
        (workspace / "d").symlink_to(tmp_path)
        (workspace / "abs").symlink_to(tmp_path / "secret")
        for word in ("a", "b", "d/secret", "abs", "./d/ws/../secret", "--file=d/secret", "-fd/secret", "@a", "d/new"):
            with pytest.raises(WorkspaceScopeDenied) as caught:
                GuardHarness(workspace).check("cat", word)
            assert caught.value.details["path"] in (str(tmp_path / "secret"), str(tmp_path / "new"))

    def test_magic_links_and_devices(self, workspace: Path) -> None:
        (workspace / "m").symlink_to("/proc/self/root")
        for word in ("m/etc/passwd", "/proc/self/root/etc/passwd", "/proc/self/cwd/f", "/dev/fd/3", "/dev/mem"):
            with pytest.raises(WorkspaceScopeDenied):
                GuardHarness(workspace).check("cat", word)
        GuardHarness(workspace).check("cat", "/dev/null", "/dev/stdin")

    def test_the_working_directory(self, tmp_path: Path, workspace: Path) -> None:
        (workspace / "d").symlink_to(tmp_path)
        for cwd in ("d", "..", "/", str(tmp_path), "d/ws/.."):
            with pytest.raises(WorkspaceScopeDenied):
                GuardHarness(workspace).check("ls", cwd=cwd)
        assert GuardHarness(workspace).check("ls", cwd="d/ws").cwd == str(workspace)

    def test_odd_names_stay_names(self, workspace: Path) -> None:
        for word in ("a\nb", "\udcff", "*", "[x]", "x" * 255, "$(id)", "`id`", ";id", "|id", "\u202e", "-" * 200):
            assert GuardHarness(workspace).check("ls", word).argv[1] == word.encode("utf-8", "surrogateescape")

    def test_a_refusal_shows_no_control_characters(self, workspace: Path) -> None:
        with pytest.raises(WorkspaceScopeDenied) as caught:
            GuardHarness(workspace).check("cat", "/etc/\x1b[2J\n\u202epasswd")
        assert caught.value.message.isprintable()

    def test_an_unsearchable_directory_cannot_hide_a_link(self, workspace: Path) -> None:
        closed = workspace / "closed"
        closed.mkdir()
        (closed / "out").symlink_to("/etc")
        closed.chmod(0)
        try:
            with pytest.raises(WorkspaceScopeDenied):
                GuardHarness(workspace).check("cat", "closed/out/passwd")
        finally:
            closed.chmod(stat.S_IRWXU)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("command", ["ls", "git", "sed", "sqlite3"])
@pytest.mark.parametrize(
    "piece", ["a", "a.", "a/", "a:", "a=b:c,", "http:", "a@", "=a://", "[", "b ", "s/a/b/;", " \n"]
)
def test_words_made_to_be_slow_to_judge(workspace: Path, command: str, piece: str) -> None:
    """Patterns that go back and forth took half a minute for these: one call must not hold a thread that long."""
    word = "-" + (piece * 4096)[:4000]
    harness = GuardHarness(workspace, egress=EgressEnforcementMode.PREFLIGHT)
    with contextlib.suppress(PalyraError):
        harness.check(command, "commit", *[word] * 120)
