from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.guard_harness import GuardHarness
from palyra.errors import PalyraError
from palyra.sandbox.domain.process_run import (
    EgressDenied,
    ExecutableDenied,
    InterpreterDenied,
    InvalidCommand,
    ProcessCommand,
    SandboxDisabled,
    SpawnFailed,
    WorkspaceScopeDenied,
)
from palyra.sandbox.domain.profile import EgressEnforcementMode, UnsupportedPlatform
from palyra.sandbox.guards.checks import check_before_spawn


@pytest.fixture
def harness(tmp_path: Path) -> GuardHarness:
    (tmp_path / "sub").mkdir()
    (tmp_path / "x.c").write_text("int main(void) { return 0; }\n")
    return GuardHarness(tmp_path, egress=EgressEnforcementMode.PREFLIGHT, allowed_egress_hosts=("allowed.example",))


def test_what_passes_is_untouched(harness: GuardHarness) -> None:
    checked = harness.check("ls", "-la", "./sub//", "", "a b", cwd="sub/..", env={"LANG": "C"})
    assert checked.argv == (b"ls", b"-la", b"./sub//", b"", b"a b")
    assert checked.cwd == str(harness.root) and checked.env == (("LANG", "C"),)
    assert checked.executable.found in ("/usr/bin/ls", "/bin/ls") and checked.executable.real == "/usr/bin/ls"


def test_bytes_that_are_no_text_pass_untouched(harness: GuardHarness) -> None:
    assert harness.check("ls", "\udcff\udcfe").argv == (b"ls", b"\xff\xfe")


def test_each_refusal_comes_in_its_turn(harness: GuardHarness) -> None:
    """One command with every fault: mending the first one shows the next."""
    profile = msgspec.structs.replace(harness.profile, allowed_executables=("find",))
    off = msgspec.structs.replace(harness.host, enabled=False)
    worst = ProcessCommand(
        command="nosuch",
        args=("/etc", "-exec", "curl", "https://evil.example", ";"),
        cwd="..",
        env=(("LD_PRELOAD", "x"),),
    )

    def mended(**changes: object) -> ProcessCommand:
        nonlocal worst
        worst = msgspec.structs.replace(worst, **changes)
        return worst

    def refused(kind: type[PalyraError], command: ProcessCommand, host: object = harness.host) -> None:
        with pytest.raises(kind) as caught:
            check_before_spawn(profile, command, host)  # type: ignore[arg-type]
        assert type(caught.value) is kind

    refused(SandboxDisabled, worst, off)
    refused(InvalidCommand, msgspec.structs.replace(worst, command=""))
    refused(SpawnFailed, worst)
    refused(ExecutableDenied, mended(command="bash"))
    refused(InterpreterDenied, mended(command="find"))
    refused(InterpreterDenied, mended(args=("/etc", "https://evil.example")))
    refused(WorkspaceScopeDenied, mended(env=()))
    refused(WorkspaceScopeDenied, mended(cwd=None))
    refused(EgressDenied, mended(args=(".", "https://evil.example")))
    assert check_before_spawn(profile, mended(args=(".", "https://allowed.example")), harness.host).argv[0] == b"find"


def test_allow_interpreters_lifts_the_guard_and_nothing_else(tmp_path: Path) -> None:
    harness = GuardHarness(tmp_path, allow_interpreters=True)
    assert harness.check("bash", "-c", "id").argv == (b"bash", b"-c", b"id")
    harness.check("env", "FOO=1", "xargs", "-0", "sh", "-c", "id")
    harness.check("git", "-c", "core.pager=sh", "log", env={"GIT_PAGER": "cat", "PATH": "/usr/bin"})
    with pytest.raises(InterpreterDenied):
        harness.check("ls", env={"LD_PRELOAD": "x"})
    with pytest.raises(WorkspaceScopeDenied):
        harness.check("bash", "/etc/profile")
    with pytest.raises(ExecutableDenied):
        harness.check("/proc/self/exe")


def test_without_egress_enforcement_hosts_are_not_looked_at(tmp_path: Path) -> None:
    GuardHarness(tmp_path).check("ls", "https://evil.example")
    with pytest.raises(EgressDenied):
        GuardHarness(tmp_path, egress=EgressEnforcementMode.STRICT).check("ls", "https://evil.example")


def test_hosts_are_allowed_only_where_somebody_serves_them(tmp_path: Path) -> None:
    strict = GuardHarness(tmp_path, egress=EgressEnforcementMode.STRICT, allowed_egress_hosts=("allowed.example",))
    command = ProcessCommand(command="curl", args=("https://allowed.example/",))
    with pytest.raises(UnsupportedPlatform):
        check_before_spawn(strict.profile, command, strict.host)
    check_before_spawn(strict.profile, command, strict.host, served=True)
    with pytest.raises(EgressDenied):
        check_before_spawn(
            strict.profile, ProcessCommand(command="curl", args=("https://other.example",)), strict.host, served=True
        )
    proxied = ProcessCommand(command="curl", args=("-x", "socks5h://127.0.0.1:1080", "https://allowed.example/"))
    check_before_spawn(strict.profile, proxied, strict.host, served=True)
    with pytest.raises(EgressDenied):
        # There it is the host's own loopback.
        GuardHarness(tmp_path, egress=EgressEnforcementMode.PREFLIGHT, allowed_egress_hosts=("allowed.example",)).check(
            "curl", *proxied.args
        )


ORDINARY = [
    ("git", "status"),
    ("git", "status", "--short", "--branch"),
    ("git", "diff", "HEAD~1", "--", "x.c"),
    ("git", "log", "--oneline", "origin/main..HEAD"),
    ("git", "commit", "-m", "fix /etc handling, see https://evil.example"),
    ("tar", "-xzf", "a.tgz"),
    ("tar", "-czf", "a.tgz", "-C", "sub", "."),
    ("tar", "xzf", "a.tgz"),
    ("cc", "-o", "x", "x.c"),
    ("cc", "-O2", "-Wall", "-Iinclude", "-I/usr/include", "-DX=1", "-c", "x.c", "-lm"),
    ("sed", "s/a/b/", "f"),
    ("sed", "-n", "/^#/p", "f"),
    ("grep", "-r", "foo", "."),
    ("grep", "-rnE", "/api/v[0-9]+", "sub"),
    ("ls", "-la"),
    ("ls", "-la", "sub/"),
    ("cat", "x.c"),
    ("head", "-n", "5", "x.c"),
    ("find", ".", "-name", "*.c"),
    ("find", ".", "-path", "./sub/*", "-prune", "-o", "-print"),
    ("mkdir", "-p", "new/deep"),
    ("cp", "-r", "sub", "sub2"),
    ("diff", "-u", "x.c", "y.c"),
    ("sort", "-t/", "-k2", "f"),
    ("wc", "-l", "x.c"),
    ("date", "+%Y/%m/%d", "-d", "1/2/2026"),
    ("touch", "a:b", "c,d", "e=f"),
    ("curl", "-fsSL", "-o", "out.txt", "https://allowed.example/a/b?c=d"),
    ("sha256sum", "x.c"),
    ("dd", "if=/dev/zero", "of=sub/blob", "bs=1M", "count=1"),
    ("chmod", "+x", "x.c"),
    ("echo", "text/html", "/not/a/path", "docker.io/library/nginx:1.25"),
    ("egrep", "a|b", "f"),
    ("zcat", "a.gz"),
]


@pytest.mark.parametrize("argv", ORDINARY, ids=" ".join)
def test_ordinary_commands_pass_untouched(harness: GuardHarness, argv: tuple[str, ...]) -> None:
    assert harness.check(*argv).argv == tuple(word.encode() for word in argv)


NAMES = st.text("abcdefghijklmnop0123456789_-.", min_size=1, max_size=10).filter(
    lambda name: not name.startswith(("-", ".")) and ".." not in name
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
WORDS = st.one_of(
    PATHS,
    PATHS.map("--file={}".format),
    PATHS.map("./{}".format),
    NAMES.map("s/{}/x/g".format),
    st.dates().map(lambda day: f"{day.day}/{day.month}/{day.year}"),
    st.integers(0, 99_999).map(str),
    st.sampled_from(
        ["-l", "-a", "--all", "-n5", "--", "-", "text/html", "origin/main", "HEAD~2", "a:b", "*.py", "é", "日本"]
    ),
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(program=st.sampled_from(["ls", "cat", "cp", "wc", "stat", "touch", "mv"]), words=st.lists(WORDS, max_size=8))
def test_words_that_stay_inside_pass_untouched(harness: GuardHarness, program: str, words: list[str]) -> None:
    assert harness.check(program, *words).argv == tuple(word.encode() for word in (program, *words))


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    before=st.lists(WORDS, max_size=4),
    path=PATHS,
    how=st.sampled_from(["{}", "--o={}", "-C{}", "@{}", "k={}", "x:{}", "file://{}"]),
)
def test_a_word_that_leads_out_never_passes(harness: GuardHarness, before: list[str], path: str, how: str) -> None:
    with pytest.raises(WorkspaceScopeDenied) as refusal:
        harness.check("cat", *before, how.format(f"/etc/{path}"))
    assert refusal.value.details["argument"] == f"args[{len(before)}]"
