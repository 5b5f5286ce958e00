"""The judge of git's own files: what runs nothing may change, and nothing that git reads gets past the parser."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palyra.sandbox.domain.git_files import judge_git_file, judge_hooks, parse_settings, target_of_pointer

ROOT = b"/w"
CONFIG = (b".git", b"config")
MODULE = (b".git", b"modules", b"lib", b"sub", b"config")
ORDINARY = b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n"
FROM_CLONE = b"""\
[remote "origin"]
\turl = https://example.test/x.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
[branch "main"]
\tremote = origin
\tmerge = refs/heads/main
\tvscode-merge-base = origin/main
[http]
\tpostBuffer = 524288000
[user]
\tname = "an # agent"
\temail = agent@example.test
[submodule]
\tactive = .
[submodule "lib/sub"]
\turl = ../sub
"""


def test_what_ordinary_commands_write_is_harmless() -> None:
    assert judge_git_file(CONFIG, ORDINARY + FROM_CLONE, ORDINARY, ROOT) == ""
    assert judge_git_file((b"x", *CONFIG), ORDINARY + FROM_CLONE, None, ROOT) == ""
    assert judge_git_file(MODULE, ORDINARY + b"\tworktree = ../../../../lib/sub\n", None, ROOT) == ""
    gitmodules = b'[submodule "a"]\n\tpath = a\n\turl = ../x\n\tbranch = main\n\tupdate = rebase\n'
    assert judge_git_file((b".gitmodules",), gitmodules, None, ROOT) == ""


HARMFUL = (
    '[core]\n\tfsmonitor = "touch x"\n',
    "[core] fsmonitor = true\n",
    "[CORE]\nFsMonitor=x",
    "\ufeff[core]\nfsmonitor = x\n",
    "[core]\r\nfsmonitor = x\r\n",
    "[core]\n\tfsmonitor\n",
    "[core]\n\tname = a \\\n\tfsmonitor = b\n[core]\nsshCommand = c\n",
    "[core]\n\thooksPath = x\n",
    "[core]\n\tworktree = ..\n",
    "[core]\n\tpager = x\n",
    "[core]\n\teditor = x\n",
    "[core]\n\tattributesFile = x\n",
    "[include]\n\tpath = x\n",
    '[includeIf "gitdir:/"]\n\tpath = x\n',
    "[alias]\n\tst = !x\n",
    '[filter "x"]\n\tclean = x\n',
    '[diff "x"]\n\ttextconv = x\n',
    "[diff]\n\texternal = x\n",
    '[merge "x"]\n\tdriver = x\n',
    "[credential]\n\thelper = !x\n",
    '[credential "https://example.test"]\n\thelper = !x\n',
    "[gpg]\n\tprogram = x\n",
    '[gpg "ssh"]\n\tdefaultKeyCommand = x\n',
    '[url "ext::sh -c x"]\n\tinsteadOf = https://example.test/\n',
    '[remote "origin"]\n\turl = ext::sh -c x\n',
    '[remote "origin"]\n\turl = -oProxyCommand=x\n',
    '[remote "origin"]\n\tuploadpack = x\n',
    '[remote "origin"]\n\tvcs = x\n',
    '[branch "main"]\n\tremote = ext::x\n',
    '[submodule "a"]\n\tupdate = !x\n',
    "[protocol]\n\tallow = always\n",
    "[gc]\n\trecentObjectsHook = x\n",
    "[uploadpack]\n\tpackObjectsHook = x\n",
    "[interactive]\n\tdiffFilter = x\n",
    "[sequence]\n\teditor = x\n",
    '[difftool "x"]\n\tcmd = x\n',
    "[http]\n\tsslVerify = false\n",
    "[http]\n\tproxy = http://127.0.0.1:1\n",
    '[branch "main"]\n\tmergeOptions = -s x\n',
    "[core.x]\n\tfsmonitor = x\n",
    '[user]\n\tname = "a\n',
    "nonsense\n",
    "[user]\n\tname = a\x00\n",
)


@pytest.mark.parametrize("added", HARMFUL)
def test_what_could_run_a_program_or_lead_elsewhere_is_not(added: str) -> None:
    assert judge_git_file(CONFIG, ORDINARY + added.encode(), ORDINARY, ROOT) != ""
    assert judge_git_file(CONFIG, added.encode(), None, ROOT) != ""


def test_what_the_person_had_set_stays_as_it_is() -> None:
    own = ORDINARY + b"[core]\n\thooksPath = /dev/null\n[alias]\n\tst = !git status\n"
    assert judge_git_file(CONFIG, own + b"[user]\n\tname = x\n", own, ROOT) == ""
    assert "hookspath" in judge_git_file(CONFIG, ORDINARY + b"[alias]\n\tst = !git status\n", own, ROOT)
    assert "st" in judge_git_file(CONFIG, own.replace(b"git status", b"evil"), own, ROOT)
    assert judge_git_file(CONFIG, b"", ORDINARY, ROOT) != ""


def test_hooks_are_samples_and_nothing_else() -> None:
    assert judge_hooks([(b"pre-commit.sample", True), (b"update.sample", True)]) == ""
    assert judge_hooks([(b"pre-commit.sample", True), (b"pre-commit", True)]) != ""
    assert judge_hooks([(b"pre-commit.sample", False)]) != ""


@pytest.mark.parametrize(
    ("names", "text", "target"),
    [
        ((b"lib", b".git"), b"gitdir: ../.git/modules/lib\n", (b".git", b"modules", b"lib")),
        ((b"a", b"tree", b".git"), b"gitdir: /w/a/.git/worktrees/tree\n", (b"a", b".git", b"worktrees", b"tree")),
        ((b"lib", b".git"), b"gitdir: ../evil\n", None),
        ((b"lib", b".git"), b"gitdir: ../.git/evil/x\n", None),
        ((b"lib", b".git"), b"gitdir: ../.git/modules/../../evil\n", None),
        ((b"lib", b".git"), b"gitdir: x/../../.git/modules/lib\n", None),
        ((b"lib", b".git"), b"gitdir: ../.git/worktrees/a/b\n", None),
        ((b"lib", b".git"), b"gitdir: ../../.git/modules/lib\n", None),
        ((b"lib", b".git"), b"gitdir: /etc/.git/modules/x\n", None),
        ((b"lib", b".git"), b"gitdir: /w2/.git/modules/x\n", None),
        ((b"lib", b".git"), b"nonsense", None),
    ],
)
def test_a_pointer_leads_to_a_repository_of_the_workspace(
    names: tuple[bytes, ...], text: bytes, target: tuple[bytes, ...] | None
) -> None:
    assert target_of_pointer(names, text, ROOT) == target
    assert (judge_git_file(names, text, None, ROOT) == "") is (target is not None)


def test_a_worktree_names_its_own_repository() -> None:
    common = (b".git", b"worktrees", b"x", b"commondir")
    assert judge_git_file(common, b"../..\n", None, ROOT) == ""
    assert judge_git_file(common, b"../../../e\n", None, ROOT) != ""
    assert judge_git_file((b".git", b"commondir"), b"../e\n", None, ROOT) != ""
    assert judge_git_file((b".git", b"modules", b"x", b"commondir"), b"../..\n", None, ROOT) != ""
    tree = (b".git", b"worktrees", b"x", b"gitdir")
    assert judge_git_file(tree, b"/w/x/.git\n", None, ROOT) == ""
    assert judge_git_file(tree, b"/etc/x/.git\n", None, ROOT) != ""


PIECES = st.sampled_from(
    (
        *(
            "[core]",
            '[a "b\\"c"]',
            '[x "y"]',
            "\n",
            "\n",
            "\t",
            "k",
            "key = ",
            "a-b=v",
            '"',
            "\\",
            "\\n",
            "#c",
            ";",
            " ",
        ),
        *("=", "fsmonitor", "\r\n", "\\\n", "[", ".", "]", "\u00e4"),
    )
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PIECES, min_size=1, max_size=12).map("".join))
def test_the_parser_reads_what_git_reads(tmp_path: Path, text: str) -> None:
    mine = parse_settings(text.encode())
    if mine is None:
        return
    (tmp_path / "config").write_bytes(text.encode())
    command = ("git", "config", "--file", str(tmp_path / "config"), "--no-includes", "--list", "-z")
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    if done.returncode == 0:
        theirs = [each.partition("\n") for each in done.stdout.decode().split("\0")[:-1]]
        read = [(name, value.strip()) for name, _, value in theirs]
        assert [(str(each), (each.value or "").strip()) for each in mine] == read
