"""Files that make a person's next git command run code, and the git commands that a person's prompt runs.

The code is harmless: it makes a marker file. ``Payload.prepare`` is what the person has, ``Payload.files`` is what an
agent writes. Each one was seen to run with git 2.39.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

MARKER: Final = "ran-outside"
_LOOKS: Final = (
    ("status", "--porcelain"),
    ("rev-parse", "--show-toplevel", "--abbrev-ref", "HEAD"),
    ("diff",),
    ("log", "-1", "--oneline"),
)


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """``files`` maps a path to its text; ``{code}`` in it is a command. Those of ``programs`` are executable."""

    name: str
    prepare: Callable[[Path], None]
    files: dict[str, str]
    # Where the person's git runs.
    at: str = "."

    def texts(self, folder: Path) -> dict[str, str]:
        return {path: text.replace("{code}", f"touch {folder / MARKER}") for path, text in self.files.items()}

    def write(self, root: Path, folder: Path) -> None:
        """Write the files as nobody would be let."""
        for path, text in self.texts(folder).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
            (root / path).chmod(0o755)


def git(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run git as a person does, with no settings but the repository's own."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{role}_{key}": "somebody" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")},
    }
    command = ("git", "-c", "protocol.file.allow=always", *words)
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=60)


def ran_outside(root: Path, folder: Path) -> bool:
    """Look as a person, a prompt and an editor do, and tell whether the planted code ran."""
    if root.is_dir():
        for words in _LOOKS:
            git(root, *words)
    return (folder / MARKER).exists()


def make_repository(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for words in (("init", "-q", "-b", "main"), ("commit", "-q", "--allow-empty", "-m", "first")):
        done = git(root, *words)
        assert done.returncode == 0, done.stderr
    (root / "file").write_text("text\n")
    git(root, "add", "file")
    git(root, "commit", "-q", "-m", "second")
    # Another time and another text, so that git looks at the file again.
    (root / "file").write_text("other text\n")


def _with_worktree(root: Path) -> None:
    make_repository(root)
    done = git(root, "worktree", "add", "-q", "tree")
    assert done.returncode == 0, done.stderr


def _with_worktree_settings(root: Path) -> None:
    _with_worktree(root)
    git(root, "config", "extensions.worktreeConfig", "true")


def _with_own_settings(root: Path) -> None:
    make_repository(root)
    git(root, "config", "extensions.worktreeConfig", "true")


def _with_submodule(root: Path) -> None:
    make_repository(root.parent / "library")
    make_repository(root)
    done = git(root, "submodule", "add", "-q", "--name", "deep/er", "../library", "sub")
    assert done.returncode == 0, done.stderr


def _with_bare(root: Path) -> None:
    make_repository(root)
    git(root, "init", "-q", "--bare", "docs")


def _nothing(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)


_FSMONITOR: Final = '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = "{code}"\n'
_BARE: Final = _FSMONITOR + "\tworktree = .\n"
_HOOK: Final = "#!/bin/sh\n{code}\n"
_EMPTY: Final = {"{0}/objects/keep": "", "{0}/refs/keep": "", "{0}/HEAD": "ref: refs/heads/main\n"}


def _repository_at(place: str) -> dict[str, str]:
    return {path.replace("{0}", place): text for path, text in _EMPTY.items()}


PAYLOADS: Final = (
    Payload(name="config", prepare=make_repository, files={".git/config": _FSMONITOR}),
    Payload(
        name="include",
        prepare=make_repository,
        files={"more": _FSMONITOR, ".git/config": "[core]\n\tbare = false\n[include]\n\tpath = ../more\n"},
    ),
    Payload(
        name="external_diff",
        prepare=make_repository,
        files={".git/config": '[core]\n\tbare = false\n[diff]\n\texternal = "{code}"\n'},
    ),
    Payload(
        name="filter",
        prepare=make_repository,
        files={
            ".gitattributes": "* filter=x\n",
            ".git/config": '[core]\n\tbare = false\n[filter "x"]\n\tclean = "{code}; cat"\n',
        },
    ),
    Payload(
        name="hooks_path",
        prepare=make_repository,
        files={
            "hooks/post-index-change": _HOOK,
            ".git/config": "[core]\n\tbare = false\n\thooksPath = hooks\n",
        },
    ),
    Payload(name="hook", prepare=make_repository, files={".git/hooks/post-index-change": _HOOK}),
    Payload(
        name="commondir",
        prepare=make_repository,
        files={**_repository_at("e"), "e/config": _FSMONITOR, ".git/commondir": "../e\n"},
    ),
    Payload(name="config_worktree", prepare=_with_own_settings, files={".git/config.worktree": _FSMONITOR}),
    Payload(name="submodule", prepare=_with_submodule, files={".git/modules/deep/er/config": _FSMONITOR}),
    Payload(
        name="worktree_commondir",
        prepare=_with_worktree,
        files={**_repository_at("e"), "e/config": _FSMONITOR, ".git/worktrees/tree/commondir": "../../../e\n"},
        at="tree",
    ),
    Payload(
        name="worktree_config",
        prepare=_with_worktree_settings,
        files={".git/worktrees/tree/config.worktree": _FSMONITOR},
        at="tree",
    ),
    Payload(name="bare", prepare=_with_bare, files={"docs/config": _BARE}, at="docs"),
    Payload(
        name="new_bare",
        prepare=make_repository,
        files={"docs/config": _BARE, **_repository_at("docs")},
        at="docs",
    ),
    Payload(
        name="new_repository",
        prepare=_nothing,
        files={"x/.git/config": _FSMONITOR, **_repository_at("x/.git")},
        at="x",
    ),
    Payload(
        name="pointer",
        prepare=_nothing,
        files={"x/.git": "gitdir: ../e\n", "e/config": _FSMONITOR, **_repository_at("e")},
        at="x",
    ),
)
