import pytest

from palyra.sandbox.guards.exec_rules import ExecRule, apply_rule, judge_git
from palyra.sandbox.guards.interpreters import find_exec_rule, judge_names

RUNNER = ExecRule(
    names=("x",), why="w", flags=("--run-it", "-r", "-word", "--act=go", "-o=bad"), valued="f", harmless=("--run",)
)


def position(rule: ExecRule, *args: str, stdin: bytes = b"") -> int | str | None:
    found = apply_rule(rule, "x", args, stdin)
    return "none" if found is None else found.position


@pytest.mark.parametrize(
    ("args", "at"),
    [
        (("a", "--run-it", "b"), 1),
        (("--run-it=b",), 0),
        (("--run-",), 0),
        (("--ru",), 0),
        (("-r",), 0),
        (("-abr",), 0),
        (("-rvalue",), 0),
        (("-word",), 0),
        (("--word",), 0),
        (("-word=x",), 0),
        (("--act=going",), 0),
        (("--act", "GO"), 0),
        (("-o", "bad"), 0),
        (("-obadly",), 0),
        (("-a", "--", "-r"), 2),
    ],
)
def test_found(args: tuple[str, ...], at: int) -> None:
    assert position(RUNNER, *args) == at


@pytest.mark.parametrize(
    "args", [("run-it",), ("--run",), ("--run-its",), ("--",), ("-",), ("-fr",), ("--act=stop",), ("-o", "good"), ()]
)
def test_not_found(args: tuple[str, ...]) -> None:
    assert position(RUNNER, *args) == "none"


def test_without_clusters_only_the_first_letter_counts() -> None:
    plain = ExecRule(names=("x",), why="w", flags=("-B",), clusters=False)
    assert position(plain, "-Bdir") == 0 and position(plain, "-DABC") == "none"


def test_subcommands_and_texts() -> None:
    only = ExecRule(names=("x",), why="w", subcommands=frozenset({"show"}))
    assert position(only, "-v", "run") == 1 and position(only, "show", "run") == "none" and position(only) == "none"
    text = ExecRule(names=("x",), why="w", text=r"^\.sh", reads_input=True, unless="-safe")
    assert position(text, "a", ".shell") == 1
    assert position(text, stdin=b"select 1;\n.shell id\n") is None
    assert position(text, stdin=b"select '.shell';") == "none"
    assert position(text, "-safe", ".shell") == "none"


def test_always_but_for_the_version() -> None:
    always = ExecRule(names=("x",), why="w", always=True)
    assert position(always) is None and position(always, "a") == 0
    assert position(always, "--version") == "none" and position(always, "--version", "a") == 0


@pytest.mark.parametrize(
    "name",
    [
        "gcc",
        "gcc-12",
        "x86_64-linux-gnu-gcc-12",
        "aarch64-linux-gnu-g++",
        "vim.basic",
        "vim.tiny",
        "GIT.exe",
        "nc.openbsd",
    ],
)
def test_an_entry_is_found_in_any_spelling(name: str) -> None:
    assert find_exec_rule(name) is not None


@pytest.mark.parametrize("name", ["ls", "cat", "mytool", "findutils-test", "sorted", "gitk"])
def test_others_have_none(name: str) -> None:
    assert find_exec_rule(name) is None


def test_every_name_of_a_program_is_judged() -> None:
    assert judge_names(("tool", "python3.11"), ()) is not None
    assert judge_names(("tool", "find"), (".", "-exec", "x", ";")) is not None
    assert judge_names(("tool", "find"), (".",)) is None


def test_one_file_with_many_names_is_judged_by_the_one_it_is_called_by() -> None:
    hard_links = ("ls", "busybox", "sh", "awk", "env", "ls")
    assert judge_names(hard_links, ("-la",)) is None
    assert judge_names(("sh", "busybox"), ("-c", "id")) is not None
    assert judge_names(("-sh", "busybox"), ()) is not None
    assert judge_names(("busybox",), ("busybox", "sh")) is not None
    assert judge_names(("busybox",), ("--install", "-s", ".")) is not None


def test_a_mark_in_the_content_cannot_excuse_another() -> None:
    marked = frozenset({"busybox", "python"})
    assert judge_names(("tool",), ("x",), marks=marked) is not None
    assert judge_names(("tool",), ("x",), marks=frozenset({"busybox"})) is None


def test_a_name_that_somebody_invented_is_not_in_the_table() -> None:
    assert judge_names(("task",), ("x",)) is not None
    assert judge_names(("task",), ("x",), invented=frozenset({"task"})) is None
    assert judge_names(("python3",), ("x",), invented=frozenset({"python3"})) is not None


def test_gits_own_commands_are_git() -> None:
    assert judge_names(("git-status", "git"), ()) is None
    assert judge_names(("git-grep", "git"), ("-Osh", "x")) is not None
    assert judge_names(("git", "git-upload-pack"), ("status",)) is None


RUNS = """
-c alias.x=!sh x
-c core.pager=sh log
-c core.sshCommand=sh fetch
-c CORE.SSHCOMMAND=sh fetch
-c core.editor=sh commit
-c core.fsmonitor=./x status
-c core.hooksPath=. commit
-c credential.helper=!sh fetch
-c diff.external=sh diff
-c filter.x.clean=sh add .
-c uploadpack.packObjectsHook=sh clone .
-c protocol.ext.allow=always clone x
-c url.ext::sh.insteadOf=x fetch
-c include.path=x status
-c gpg.program=sh commit
-c some.futureSetting=sh status
-c core.pager log
-C sub -c core.pager=sh log
-p -c core.pager=sh log
--no-pager --config-env=core.pager=X log
--exec-path=. status
x
lazy
difftool
mergetool
filter-branch --tree-filter x
bisect run x
submodule foreach x
rebase -x sh main
rebase --exec sh main
rebase --exec=sh main
rebase --ex sh main
rebase -ix sh
clone -u sh x
clone --upload-pack=sh x
clone --upload-p sh x
clone -c core.pager=sh x
clone --config core.pager=sh x
clone --template=t x
clone ext::sh
clone EXT::sh%20-c%20id
remote add x ext::sh
fetch --upload-pack sh
ls-remote --upload-pack=sh x
ls-remote --exec=sh x
push --receive-pack=sh
push --exec=sh
archive --remote=x --exec=sh HEAD
grep -Osh x
grep -nOsh x
grep --open-files-in-pager=sh x
init --template=x
log --ext-diff
help -w log
send-email x
instaweb
daemon
shell
hook run x
for-each-repo x
remote-ext sh
config alias.x !sh
config --global alias.x !sh
config --add core.pager sh
config --replace-all core.pager sh
config --file user.name core.pager sh
config -f user.name core.pager sh
config set core.pager sh
config --edit
config user.name x --edit
""".strip().splitlines()

RUNS_NOTHING = """
status
status --short
--version
commit -m x
commit -am x --no-verify
-c user.name=A -c user.email=b@c commit -m x
-c core.pager=cat log
-c color.ui=always diff
-C sub status
--git-dir=.git --work-tree=. status
--no-pager log --oneline -n 5
push -u origin main
fetch -u
stash -u
clean -xn
cherry-pick -x abc
log --format=%H --stat
diff HEAD~1..HEAD -- src
show HEAD:src/x
clone https://example.org/x.git
clone --depth 1 -b main https://example.org/x.git d
clone -c core.autocrlf=false x
remote add origin git@example.org:x/y.git
rebase -i main
rebase --continue
init
init -b main
add :/
tag -a v1 -m x
worktree add ../x
config user.email a@b.c
config --global user.name A
config --get core.pager
config core.pager
config --list
config --unset alias.x
submodule update --init
bisect start
merge --no-ff x
grep -n foo
help log
""".strip().splitlines()


@pytest.mark.parametrize("line", RUNS)
def test_it_runs_a_program(line: str) -> None:
    finding = judge_git(tuple(line.split()))
    assert finding is not None and finding.why and finding.program == "git"
    assert finding.position is not None and finding.position < len(line.split())


@pytest.mark.parametrize("line", RUNS_NOTHING)
def test_it_runs_nothing(line: str) -> None:
    assert judge_git(tuple(line.split())) is None


def test_nothing_at_all() -> None:
    assert judge_git(()) is None
