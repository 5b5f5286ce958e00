import shlex
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
from palyra.sandbox.guards.checks import check_before_spawn, find_destinations, refuse_environment, refuse_other_hosts


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


ALWAYS = """
    LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT LD_DEBUG_OUTPUT DYLD_INSERT_LIBRARIES GCONV_PATH GLIBC_TUNABLES HOME TMPDIR
    PALYRA_TOKEN
"""
WITH_INTERPRETERS = [
    "PATH",
    "BASH_ENV",
    "ENV",
    "IFS",
    "SHELLOPTS",
    "PS4",
    "PROMPT_COMMAND",
    "ZDOTDIR",
    "POSIXLY_CORRECT",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "PYTHONHOME",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PERL5OPT",
    "PERL5LIB",
    "PERL5DB",
    "RUBYOPT",
    "RUBYLIB",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "LUA_INIT",
    "LUA_INIT_5_4",
    "AWKPATH",
    "AWKLIBPATH",
    "JAVA_TOOL_OPTIONS",
    "CLASSPATH",
    "GIT_SSH_COMMAND",
    "GIT_SSH",
    "GIT_EXTERNAL_DIFF",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_KEY_0",
    "GIT_CONFIG_GLOBAL",
    "GIT_EDITOR",
    "GIT_PAGER",
    "GIT_PROXY_COMMAND",
    "GIT_ASKPASS",
    "GIT_EXEC_PATH",
    "GIT_DIR",
    "SSH_ASKPASS",
    "RSYNC_RSH",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "MANPAGER",
    "LESSOPEN",
    "LESSCLOSE",
    "LESS",
    "BROWSER",
    "TAR_OPTIONS",
    "TAPE",
    "GCC_EXEC_PREFIX",
    "COMPILER_PATH",
    "CC",
    "RUSTC_WRAPPER",
    "GOFLAGS",
    "MAKEFLAGS",
    "OPENSSL_CONF",
    "OPENSSL_MODULES",
    "XDG_CONFIG_HOME",
    "CURL_HOME",
    "DOCKER_HOST",
    "KUBECONFIG",
    "MYSQL_HOME",
    "VIMINIT",
    "EXINIT",
    "npm_config_prefix",
]
HARMLESS = [
    "LANG",
    "LC_ALL",
    "TZ",
    "TERM",
    "COLUMNS",
    "NO_COLOR",
    "DEBUG",
    "CI",
    "FOO",
    "MY_SETTING",
    "RUST_LOG",
    "NODE_ENV",
    "PYTHONUNBUFFERED",
    "GIT_AUTHOR_NAME",
    "PGPASSWORD",
    "GIT_COMMITTER_DATE",
    "SOURCE_DATE_EPOCH",
    "https_proxy",
    "DATABASE_URL",
    "USER",
    "DEBIAN_FRONTEND",
]


@pytest.mark.parametrize("name", ALWAYS.split())
@pytest.mark.parametrize("allow", [False, True])
def test_refused_always(name: str, allow: bool) -> None:
    with pytest.raises(InterpreterDenied) as refusal:
        refuse_environment((("A", ""), (name, "x")), allow_interpreters=allow)
    assert refusal.value.details["argument"] == f"env.{name}"


@pytest.mark.parametrize("name", WITH_INTERPRETERS)
def test_refused_unless_interpreters_are_allowed(name: str) -> None:
    with pytest.raises(InterpreterDenied):
        refuse_environment(((name, "x"),), allow_interpreters=False)
    refuse_environment(((name, "x"),), allow_interpreters=True)


@pytest.mark.parametrize("name", HARMLESS)
def test_plain_values_pass(name: str) -> None:
    refuse_environment(((name, "x"),), allow_interpreters=False)


ALLOWED = ("ok.example", "*.sub.example:443", "git.example:22", "127.0.0.1:8080")


def command(line: str, **more: object) -> ProcessCommand:
    name, *args = shlex.split(line)
    return ProcessCommand(command=name, args=tuple(args), **more)  # type: ignore[arg-type]


def check(wanted: ProcessCommand, allowed: tuple[str, ...]) -> None:
    refuse_other_hosts(find_destinations(wanted), allowed)


@pytest.mark.parametrize(
    "line",
    r"""
    curl https://ok.example/x
    curl HTTPS://OK.Example:443/x
    curl https://a.sub.example/x?u=https%3A%2F%2Fz
    curl --url=https://ok.example
    curl -o file.txt https://ok.example/a.b
    curl -d {"a":1} https://ok.example
    curl ok.example/x
    curl http://127.0.0.1:8080/
    wget -O out.html https://ok.example
    git clone git@git.example:a/b.git
    git clone ssh://git@git.example/a/b
    git clone https://ok.example/a/b.git
    git commit -m 'see https://evil.example and x@evil.example'
    git show v1.2:src/x.c
    git log --author=a@evil.example
    ssh ok.example uptime.txt
    scp a.txt git.example:b
    ls -la
    tar -xzf a.tgz
    cc -o x x.c
    grep -rn foo.bar .
    date 12:30
    echo a:b 1.2.3.4 file.c:12
    docker pull nginx:1.25
    psql -c 'select 1'
    cat file:///x
    """.strip().splitlines(),
)
def test_passes(line: str) -> None:
    check(command(line.replace("ssh ok.example uptime.txt", "ssh ok.example")), ALLOWED)


@pytest.mark.parametrize(
    ("line", "argument"),
    [
        ("curl https://evil.example", "args[0]"),
        ("curl -s HTTPS://EVIL.EXAMPLE/", "args[1]"),
        ("curl --url=https://evil.example", "args[0]"),
        ("curl https://ok.example@evil.example/", "args[0]"),
        ("curl https://evil.example@ok.example/", "args[0]"),
        ("curl https://evil.example\\\\@ok.example/", "args[0]"),
        ("curl 'https://evil.example#@ok.example/'", "args[0]"),
        ("curl http:/evil.example", "args[0]"),
        ("curl 'http:\\\\evil.example'", "args[0]"),
        ("curl 'ht\ttp://evil.example'", "args[0]"),
        ("curl https://ok.example.evil.example", "args[0]"),
        ("curl https://evilok.example", "args[0]"),
        ("curl https://sub.example", "args[0]"),
        ("curl https://ok.example:8443/", "args[0]"),
        ("git clone ssh://ok.example/a", "args[1]"),
        ("curl http://a.sub.example", "args[0]"),
        ("curl https://evil%2eexample", "args[0]"),
        ("curl http://127.1/", "args[0]"),
        ("curl http://127.0.0.1/", "args[0]"),
        ("curl http://0x7f000001/", "args[0]"),
        ("curl http://2130706433/", "args[0]"),
        ("curl http://0177.0.0.1/", "args[0]"),
        ("curl http://１２７.0.0.1/", "args[0]"),
        ("curl http://[::1]/", "args[0]"),
        ("curl http://[::ffff:127.0.0.1]:80/", "args[0]"),
        ("curl evil.example", "args[0]"),
        ("curl evil.example/x.tgz", "args[0]"),
        ("curl 2130706433", "args[0]"),
        ("curl localhost", "args[0]"),
        ("curl -x evil.example:3128 https://ok.example", "args[1]"),
        ("curl --proxy=socks5://evil.example https://ok.example", "args[0]"),
        ("curl --resolve=ok.example:443:10.0.0.1 https://ok.example", "args[0]"),
        ("curl --connect-to ok.example:443:evil:443 https://ok.example", "args[1]"),
        ("curl https://ok.example -o x evil.example", "args[3]"),
        ("curl -H 'X: https://evil.example' https://ok.example", "args[1]"),
        ("wget ftp://evil.example/x", "args[0]"),
        ("git clone git@evil.example:a/b", "args[1]"),
        ("git clone evil.example:a/b", "args[1]"),
        ("git clone git+ssh://evil.example/a", "args[1]"),
        ("git remote add x git://evil.example/a", "args[3]"),
        ("git fetch ssh://git@git.example:2222/a", "args[1]"),
        ("tool --server evil.example:443", "args[1]"),
        ("tool --server=evil.example:443", "args[0]"),
        ("tool localhost:80", "args[0]"),
        ("tool [::1]:80", "args[0]"),
        ("tool user@evil.example", "args[0]"),
        ("ssh evil", "args[0]"),
        ("ssh user@evil", "args[0]"),
        ("scp a evil:b", "args[1]"),
        ("rsync -a . u@evil:/x", "args[2]"),
        ("ping 10.0.0.1", "args[0]"),
        ("nc evil.example 80", "args[0]"),
        ("tool postgres://evil.example/db", "args[0]"),
        ("tool jdbc:postgresql://evil.example/db", "args[0]"),
    ],
)
def test_refused_with_what_was_found(line: str, argument: str) -> None:
    with pytest.raises(EgressDenied) as refusal:
        check(command(line), ALLOWED)
    assert refusal.value.details["argument"] == argument and refusal.value.details["kind"] == "egress_denied"


def test_requested_hosts_and_proxies_in_the_environment_count() -> None:
    with pytest.raises(EgressDenied) as asked:
        check(command("ls", requested_egress_hosts=("ok.example", "evil.example:443")), ALLOWED)
    assert asked.value.details == {
        "kind": "egress_denied",
        "argument": "requested_egress_hosts[1]",
        "host": "evil.example",
        "port": 443,
    }
    with pytest.raises(EgressDenied) as proxy:
        check(command("ls", env=(("https_proxy", "http://evil.example:3128"),)), ALLOWED)
    assert proxy.value.details["argument"] == "env.https_proxy"


def test_no_host_is_allowed_by_an_empty_list() -> None:
    check(command("ls -la"), ())
    with pytest.raises(EgressDenied):
        check(command("curl https://ok.example"), ())


def test_what_is_found_is_told() -> None:
    (found,) = find_destinations(command("curl https://ok.example:444/x"))
    assert (found.host, found.port, found.where) == ("ok.example", 444, "args[0]")
