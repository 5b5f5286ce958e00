"""The names that run later, as data: what a person's own programs read by themselves once they open a folder.

A name is here if git, a shell, an editor, an agent or a package tool acts on it without being asked to run it. What a
person starts on purpose (a Makefile, a test, the scripts of package.json) is not: agents are there to write that.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Final, Literal, NamedTuple

ProtectedGroup = Literal["git", "shell", "editors", "agents", "package-tools", "ci", "secrets"]


class Handling(StrEnum):
    """The rights of a sandboxed program to a name. The file tools write none of them."""

    # Read-only where it exists; moved aside, kept or refused where it appears.
    SEALED = "sealed"
    # Ordinary commands of git write it. After the call its content decides: only what runs nothing stays.
    JUDGED = "judged"
    # Package tools write it in every install.
    LET_BE = "let_be"


class ProtectedRow(NamedTuple):
    pattern: str
    group: ProtectedGroup
    reason: str
    handling: Handling = Handling.SEALED


def _rows(
    group: ProtectedGroup, reason: str, *patterns: str, handling: Handling = Handling.SEALED
) -> list[ProtectedRow]:
    return [ProtectedRow(pattern, group, reason, handling) for pattern in patterns]


_CONFIG: Final = "git runs programs that a repository's configuration names: core.fsmonitor, aliases, filters"
_POINTER: Final = "points git at another directory, whose configuration and hooks it then takes"
_MODULES: Final = ".git/modules/**/"
_INSTRUCTIONS: Final = "an agent of the person's reads it as instructions when it starts in the folder"
_AGENT_FOLDER: Final = "holds an agent's hooks, commands and servers, which it starts by itself"
_CI: Final = "the forge runs it with the repository's credentials once it is pushed"
_LOGIN: Final = "a shell runs it, where the workspace is a home folder"

PROTECTED_TABLE: Final[tuple[ProtectedRow, ...]] = (
    *_rows("git", _CONFIG, ".git/config", ".git/config.worktree", handling=Handling.JUDGED),
    *_rows("git", _CONFIG, f"{_MODULES}config", f"{_MODULES}config.worktree", handling=Handling.JUDGED),
    *_rows("git", _CONFIG, ".git/worktrees/*/config.worktree", handling=Handling.JUDGED),
    *_rows("git", _POINTER, ".git/commondir", ".git/worktrees/*/commondir", handling=Handling.JUDGED),
    *_rows("git", _POINTER, ".git/worktrees/*/gitdir", handling=Handling.JUDGED),
    *_rows("git", _POINTER, f"{_MODULES}commondir", f"{_MODULES}gitdir", handling=Handling.JUDGED),
    *_rows("git", "names the folders and addresses of submodules", ".gitmodules", handling=Handling.JUDGED),
    *_rows("git", "git runs it at commit, checkout, merge", ".git/hooks", f"{_MODULES}hooks", handling=Handling.JUDGED),
    *_rows(
        "git",
        "the next git rebase --continue runs its exec lines",
        ".git/rebase-merge/git-rebase-todo",
        ".git/worktrees/*/rebase-merge/git-rebase-todo",
        f"{_MODULES}rebase-merge/git-rebase-todo",
        handling=Handling.LET_BE,
    ),
    *_rows(
        "git",
        "a manager of hooks runs it at the next commit",
        ".husky",
        ".githooks",
        ".pre-commit-config.yaml",
        "lefthook.yml",
        "lefthook.yaml",
        ".lefthook.yml",
        ".lefthook.yaml",
        "lefthook-local.yml",
        ".overcommit.yml",
    ),
    *_rows(
        "git",
        "another version control runs the hooks and extensions that it names",
        ".hg/hgrc",
        ".hg/sharedpath",
        ".jj/repo/config.toml",
        ".sl/config",
    ),
    *_rows(
        "shell",
        "mise and asdf set variables, run hooks and choose programs from it when a shell enters the folder",
        "mise.toml",
        "mise.*.toml",
        ".mise.toml",
        ".mise.*.toml",
        ".mise",
        ".config/mise",
        ".config/mise.toml",
        ".tool-versions",
    ),
    *_rows("shell", "autoenv runs it when a shell enters the folder", ".autoenv", ".autoenv.zsh"),
    *_rows("shell", _LOGIN, ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile"),
    *_rows("shell", _LOGIN, ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".config/fish"),
    *_rows(
        "shell", "the session runs it, where the workspace is a home folder", ".config/autostart", ".config/systemd"
    ),
    *_rows(
        "editors",
        "an editor reads tasks, settings and programs from it when it opens the folder",
        ".vscode",
        "*.code-workspace",
        ".idea",
        ".vs",
        ".zed",
        ".fleet",
        ".nova",
        ".helix",
        ".externalToolBuilders",
    ),
    *_rows("editors", "an editor builds and starts what it says", ".devcontainer", ".devcontainer.json", ".gitpod.yml"),
    *_rows(
        "editors",
        "vim runs it when it starts in the folder",
        ".exrc",
        ".nvimrc",
        ".nvim.lua",
        ".vimrc",
        ".gvimrc",
        ".lvimrc",
        ".local.vimrc",
        ".ycm_extra_conf.py",
    ),
    *_rows("editors", "Emacs evaluates it when it opens a file beneath", ".dir-locals.el", ".dir-locals-2.el"),
    *_rows("editors", "a debugger runs it when it starts in the folder", ".gdbinit", ".lldbinit"),
    *_rows("agents", _INSTRUCTIONS, "CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "AGENTS.override.md", "AGENT.md"),
    *_rows("agents", _INSTRUCTIONS, "GEMINI.md", "QWEN.md", "WARP.md", ".cursorrules", ".windsurfrules", ".rules"),
    *_rows("agents", _INSTRUCTIONS, ".clinerules", ".roorules", ".roomodes", ".goosehints", ".augment-guidelines"),
    *_rows(
        "agents",
        _INSTRUCTIONS,
        ".github/copilot-instructions.md",
        ".github/instructions",
        ".github/prompts",
        ".github/chatmodes",
        ".github/agents",
    ),
    *_rows("agents", _AGENT_FOLDER, ".claude", ".cursor", ".codex", ".gemini", ".windsurf", ".kiro", ".roo", ".cline"),
    *_rows("agents", _AGENT_FOLDER, ".continue", ".continuerc.json", ".agents", ".agent", ".junie", ".augment"),
    *_rows("agents", _AGENT_FOLDER, ".amazonq", ".goose", ".opencode", "opencode.json", "opencode.jsonc", ".qwen"),
    *_rows("agents", _AGENT_FOLDER, ".trae", ".factory", ".crush", ".crush.json", "crush.json", ".warp", ".amp"),
    *_rows("agents", _AGENT_FOLDER, ".aider.conf.yml", ".aider.model.settings.yml"),
    *_rows("agents", "names servers that an agent starts", ".mcp.json"),
    *_rows(
        "package-tools",
        "names registries, scripts or plug-ins that the next install takes",
        ".npmrc",
        ".yarnrc",
        ".yarnrc.yml",
        ".yarn/releases",
        ".yarn/plugins",
        ".yarn/sdks",
        ".pnpmfile.cjs",
        ".pnpmfile.mjs",
        ".condarc",
    ),
    *_rows(
        "package-tools",
        "names compilers, wrappers or start options that the next build takes",
        ".cargo/config",
        ".cargo/config.toml",
        ".mvn",
        ".bazelrc",
        ".buckconfig",
    ),
    *_rows("package-tools", "Python imports it at every start", "sitecustomize.py", "usercustomize.py"),
    *_rows("package-tools", "Python runs its lines at every start", "*.pth", handling=Handling.LET_BE),
    *_rows(
        "package-tools",
        "programs that a person starts by a short name",
        "node_modules/.bin",
        ".venv/bin",
        "venv/bin",
        handling=Handling.LET_BE,
    ),
    *_rows("package-tools", "Bundler takes options and plug-ins from it", ".bundle", handling=Handling.LET_BE),
    *_rows("ci", _CI, ".github/workflows", ".github/actions", ".gitlab-ci.yml", ".circleci", "Jenkinsfile"),
    *_rows("ci", _CI, ".forgejo/workflows", ".gitea/workflows", ".woodpecker", ".woodpecker.yml", ".woodpecker.yaml"),
    *_rows("ci", _CI, ".drone.yml", ".travis.yml", ".cirrus.yml", ".appveyor.yml", "appveyor.yml", ".buildkite"),
    *_rows("ci", _CI, "azure-pipelines.yml", "bitbucket-pipelines.yml", "buildspec.yml", "cloudbuild.yaml"),
    *_rows("ci", _CI, ".builds", ".build.yml", ".semaphore", ".teamcity", ".tekton"),
    *_rows("secrets", "holds credentials; direnv runs .envrc when a shell enters the folder", ".env*"),
    *_rows("secrets", "holds credentials", ".pypirc", ".netrc", ".git-credentials", ".ssh"),
)

# Renamed into by Palyra itself, where the place for moved names is on another file system.
ASIDE_NAME: Final = ".palyra-aside"
PROTECTED_NAMES: Final = tuple(row.pattern for row in PROTECTED_TABLE)
# Packages bring names of every group with them, and nobody opens these folders as a project.
PACKAGE_FOLDERS: Final = frozenset({b"node_modules", b"site-packages"})
_ROWS: Final = {row.pattern: row for row in PROTECTED_TABLE}


# git takes a directory with these for a repository, whatever its name is.
REPOSITORY_SIGNS: Final = frozenset({"HEAD", "objects", "refs", "commondir"})
# What git reads in it that can make it run a program.
REPOSITORY_JUDGED: Final = (b"config", b"config.worktree", b"commondir", b"hooks")
REPOSITORY_PARTS: Final = frozenset({"head", "objects", "refs", "commondir", "config", "config.worktree", "hooks"})
# Where an operator protects this name, such directories are protected too.
REPOSITORY_PATTERN: Final = ".git/config"


def is_repository(there: Collection[str]) -> bool:
    """Whether git would take a directory with these names, in lower case, for a repository."""
    return "head" in there and (("objects" in there and "refs" in there) or "commondir" in there)


def handling_of(pattern: str) -> Handling:
    """Return the handling of a pattern. An operator's own pattern is sealed."""
    row = _ROWS.get(pattern)
    return Handling.SEALED if row is None else row.handling


def group_of(pattern: str) -> ProtectedGroup | None:
    row = _ROWS.get(pattern)
    return None if row is None else row.group


def how_to_open(pattern: str) -> str:
    """Name the setting that lets agents write the names of a pattern."""
    group = group_of(pattern)
    if group is None:
        return "an operator keeps this name in workspace.protected_names"
    return f'an operator lets agents write such names with open_groups = ["{group}"] in [workspace]'


def leave_out(patterns: Iterable[str], groups: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns that are in none of the opened groups."""
    opened = frozenset(groups)
    return tuple(each for each in patterns if group_of(each) not in opened)


def brought_by_no_package(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns that also count in ``PACKAGE_FOLDERS``: those of git itself, and the operator's own."""
    return tuple(each for each in patterns if group_of(each) is None or handling_of(each) is Handling.JUDGED)


@lru_cache(maxsize=64)
def watched_in_sandbox(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the patterns that the sandbox seals or judges."""
    kept = tuple(each for each in patterns if handling_of(each) is not Handling.LET_BE)
    return (*kept, ASIDE_NAME) if kept else ()
