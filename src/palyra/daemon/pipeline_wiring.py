"""The boundaries of every call, from the settings."""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from palyra.browser.profiles import tables as browser
from palyra.clock import MS_PER_SECOND
from palyra.config.state_dir import StateDir
from palyra.daemon.settings import Settings
from palyra.errors import InvalidInput
from palyra.executors.mcp_upstream import pin_tables as mcp
from palyra.fleet.store import schema as workers
from palyra.identity import tables as identity
from palyra.journal import search
from palyra.nodes.store import schema as nodes
from palyra.pipeline.domain.budget import RunBudget
from palyra.pipeline.domain.call import ToolCallConfig
from palyra.pipeline.domain.workspaces import Workspaces
from palyra.pipeline.store import approval_tables, call_tables, run_tables
from palyra.policy.request import EntityDirectory
from palyra.server.console import tables as console
from palyra.skills.registry import schema as skills
from palyra.vault import tables as vault
from palyra.workspace.errors import BadRoot

# As many as the kernel follows.
_MOST_LINKS: Final = 40


class WorkspaceHoldsPalyra(InvalidInput):
    code = "workspace.holds_palyra"
    hint = (
        "choose the folder of a project with --workspace: who works in this one could read Palyra's keys, or change its"
        " settings, its policies or the programs it runs"
    )


def tool_call_config(
    settings: Settings,
    state: StateDir,
    policy_dir: Path,
    directory: EntityDirectory,
    settings_file: Path | None = None,
) -> ToolCallConfig:
    meant = state.path("workspace")
    root = Path(settings.workspace.root).expanduser() if settings.workspace.root else meant
    _refuse_own_places(_real(root), settings, state, policy_dir, settings_file)
    if root == meant:
        with suppress(FileExistsError):
            root.mkdir(mode=0o700)
    _refuse_missing(root)
    return ToolCallConfig(
        directory=directory,
        workspaces=Workspaces(default=str(_real(root))),
        timeout_ms=settings.tools.timeout_ms,
        max_timeout_ms=settings.tools.max_timeout_ms,
        max_output_bytes=settings.tools.max_output_bytes,
        max_concurrent_calls=settings.tools.max_concurrent_calls,
        run_budget=msgspec.convert(settings.budget, RunBudget, from_attributes=True),
        approval_ttl_ms=settings.approvals.ttl_seconds * MS_PER_SECOND,
        max_approval_ttl_ms=settings.approvals.max_ttl_seconds * MS_PER_SECOND,
    )


def _refuse_missing(root: Path) -> None:
    """Refuse a missing workspace rather than make it.

    A new folder for a misspelled name would look like a project that lost its files.
    """
    if root.is_dir():
        return
    if root.exists():
        raise BadRoot(f"the workspace {root} is not a folder", path=str(root))
    raise BadRoot(
        f"the workspace {root} does not exist",
        hint="name the folder of a project that is there, with --workspace or workspace.root; or make this one first",
        path=str(root),
    )


def _refuse_own_places(
    root: Path, settings: Settings, state: StateDir, policy_dir: Path, settings_file: Path | None
) -> None:
    """Refuse a workspace that holds, or lies in, a place that Palyra itself depends on.

    Agents write the workspace. Its own folder in the state directory is allowed. A settings file that does not exist
    yet counts, because an agent could write it.
    """
    files = [*([settings_file] if settings_file else []), *_named_files(settings)]
    folders = [state.root, policy_dir]
    for place in (each for own in (*folders, *files) for each in _on_the_way_to(own)):
        if place == root or root in place.parents:
            raise WorkspaceHoldsPalyra(f"{root} holds {place}: it cannot be a workspace", path=str(root))
    meant = _real(state.path("workspace"))
    for place in (_real(each) for each in folders):
        if place in root.parents and root != meant and meant not in root.parents:
            raise WorkspaceHoldsPalyra(f"{root} lies in {place}: it cannot be a workspace", path=str(root))


def _named_files(settings: Settings) -> list[Path]:
    """Return the files outside the state directory that the settings name and Palyra reads, trusts or runs."""
    vault, skills = settings.vault, settings.skills
    named = [vault.key_file, vault.passphrase_file, settings.egress.ca_file, settings.browser.engine]
    if skills.builder_enabled and skills.builder_command:
        program, *arguments = skills.builder_command
        named.append(shutil.which(os.path.expanduser(program)) or program)
        # What an interpreter is given to run. A folder among them is one to work on.
        named += [each for each in arguments if os.path.isfile(each)]
    return [Path(each).expanduser() for each in named if each]


def _on_the_way_to(path: Path) -> list[Path]:
    """Return the real path, preceded by each link on the way: replacing a link changes what is found."""
    links: list[Path] = []
    here, ahead = Path("/"), [*path.absolute().parts[1:]]
    while ahead and len(links) < _MOST_LINKS:
        name = ahead.pop(0)
        here = here.parent if name == ".." else here / name
        if here.is_symlink():
            links.append(here)
            target = here.readlink()
            here, ahead = Path("/") if target.is_absolute() else here.parent, [*_names(target), *ahead]
    return [*links, _real(path)]


def _real(path: Path) -> Path:
    """Resolve as ``Path.resolve`` does, without hanging on links that lead in a circle."""
    return Path(os.path.realpath(path))


def _names(path: Path) -> tuple[str, ...]:
    return path.parts[1:] if path.is_absolute() else path.parts


# Every table of the daemon's database. Each process that opens it creates the missing ones.

SCHEMA: Final = (
    *run_tables.SCHEMA,
    *approval_tables.SCHEMA,
    *call_tables.SCHEMA,
    *identity.TOKENS,
    *vault.SCHEMA,
    *identity.SCHEMA,
    *workers.SCHEMA,
    *nodes.SCHEMA,
    *skills.SCHEMA,
    *mcp.SCHEMA,
    *browser.SCHEMA,
    *search.SCHEMA,
    *console.SCHEMA,
)


# Which principals, tools and channels the settings put in which sets: the directory that policies speak about.


def directory_of(settings: Settings) -> EntityDirectory:
    access, tools = settings.access, settings.tools
    return EntityDirectory.from_lists(
        principals=access.principals,
        operators=access.operators,
        groups=access.groups,
        tools=tools.allowed,
        preapproved=tools.preapproved,
        channels=access.channels,
    )
