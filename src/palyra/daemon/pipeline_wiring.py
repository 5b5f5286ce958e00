"""The boundaries of every call, from the settings."""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from itertools import permutations, product
from pathlib import Path
from typing import Final

import msgspec

from palyra.browser.profiles import tables as browser
from palyra.clock import MS_PER_SECOND
from palyra.config.state_dir import StateDir
from palyra.daemon.settings import Settings
from palyra.errors import InvalidInput
from palyra.executors.mcp_upstream import pin_tables as mcp
from palyra.executors.mcp_upstream.settings import CALLERS_WORKSPACE
from palyra.fleet.store import schema as workers
from palyra.identity import tables as identity
from palyra.journal import search
from palyra.nodes.store import schema as nodes
from palyra.pipeline.domain.budget import RunBudget
from palyra.pipeline.domain.call import ToolCallConfig
from palyra.pipeline.domain.workspaces import Workspaces, assign_workspaces, expand_who
from palyra.pipeline.store import approval_tables, argument_tables, call_tables, result_tables, run_tables
from palyra.policy.request import EntityDirectory
from palyra.sandbox.tier_b import SYSTEM_PATHS
from palyra.server.console import tables as console
from palyra.skills.registry import schema as skills
from palyra.vault import tables as vault
from palyra.workspace.errors import BadRoot

# In the state directory: where calls work if the settings name no folder.
OWN_WORKSPACE: Final = "workspace"
# As many as the kernel follows.
_MOST_LINKS: Final = 40


class WorkspaceHoldsPalyra(InvalidInput):
    code = "workspace.holds_palyra"
    hint = (
        "choose the folder of a project with --workspace: who works in this one could read Palyra's keys, or change its"
        " settings, its policies or the programs it runs"
    )


class WorkspacesOverlap(InvalidInput):
    code = "workspace.overlap"
    hint = "give each workspace a folder of its own: none may be another one, or lie in it, also through links"


def tool_call_config(
    settings: Settings,
    state: StateDir,
    policy_dir: Path,
    directory: EntityDirectory,
    settings_file: Path | None = None,
) -> ToolCallConfig:
    own = state.path(OWN_WORKSPACE)
    if _default_root(settings, state.root) == own:
        with suppress(FileExistsError):
            own.mkdir(mode=0o700)
    return ToolCallConfig(
        directory=directory,
        workspaces=check_workspaces(settings, state.root, policy_dir, directory, settings_file),
        timeout_ms=settings.tools.timeout_ms,
        max_timeout_ms=settings.tools.max_timeout_ms,
        max_output_bytes=settings.tools.max_output_bytes,
        max_concurrent_calls=settings.tools.max_concurrent_calls,
        max_concurrent_calls_per_principal=settings.tools.max_concurrent_calls_per_principal,
        calls_for_operators=settings.tools.calls_for_operators,
        runs_per_hour=settings.budget.runs_per_hour,
        run_budget=msgspec.convert(settings.budget, RunBudget, from_attributes=True),
        approval_ttl_ms=settings.approvals.ttl_seconds * MS_PER_SECOND,
        denied_again_ms=settings.approvals.denied_again_seconds * MS_PER_SECOND,
        max_approval_ttl_ms=settings.approvals.max_ttl_seconds * MS_PER_SECOND,
    )


def check_workspaces(
    settings: Settings, state: Path, policy_dir: Path, directory: EntityDirectory, settings_file: Path | None
) -> Workspaces:
    """Return the workspaces of the settings. Refuse folders that are missing, that overlap, or that hold Palyra."""
    own = state / OWN_WORKSPACE
    roots = {"workspace.root": _default_root(settings, state)}
    roots |= {f"workspaces.{name}": Path(table.root).expanduser() for name, table in settings.workspaces.items()}
    for setting, root in roots.items():
        _refuse_own_places(_real(root), settings, state, policy_dir, settings_file)
        if root != own or own.exists():
            _refuse_missing(root, setting)
    workspaces = workspaces_of(settings, state, directory)
    if workspaces.named:
        _refuse_shared_places(roots, settings)
    return workspaces


def _default_root(settings: Settings, state: Path) -> Path:
    return Path(settings.workspace.root).expanduser() if settings.workspace.root else state / OWN_WORKSPACE


def workspaces_of(settings: Settings, state: Path, directory: EntityDirectory) -> Workspaces:
    """Build the workspaces of the settings, whatever their folders are."""
    return Workspaces(
        default=str(_real(_default_root(settings, state))),
        others=expand_who(settings.workspace.who, directory.groups),
        named=tuple(
            msgspec.structs.replace(each, root=str(_real(Path(each.root).expanduser())))
            for each in assign_workspaces(settings.workspaces, directory.groups)
        ),
    )


def _refuse_missing(root: Path, setting: str) -> None:
    """Refuse a missing workspace rather than make it.

    A new folder for a misspelled name would look like a project that lost its files.
    """
    if root.is_dir():
        return
    if root.exists():
        raise BadRoot(f"the workspace {root} is not a folder", path=str(root))
    where = "--workspace or workspace.root" if setting == "workspace.root" else f"{setting}.root"
    raise BadRoot(
        f"the workspace {root} does not exist",
        hint=f"name the folder of a project that is there, with {where}; or make this one first",
        path=str(root),
    )


def _refuse_shared_places(roots: Mapping[str, Path], settings: Settings) -> None:
    """Refuse workspaces that share a file with another one, or with what the programs of every principal may read.

    Agents of one could read or change the files of the other. A link in one workspace that leads to another counts,
    because its agents could make it lead elsewhere.
    """
    for (one, root), (other, its) in permutations(roots.items(), 2):
        place = _find_place_in(root, its)
        if place is not None:
            raise WorkspacesOverlap(f"{one} is {root}, and {place} lies in {its}, which is {other}", path=str(root))
    for (one, root), (place, hint) in product(roots.items(), _list_shared_places(settings)):
        if _find_place_in(root, place) or _find_place_in(place, root):
            raise WorkspacesOverlap(
                f"{one} is {root}, and programs that serve every principal use {place}",
                hint=f"choose another folder for the workspace, {hint}",
                path=str(root),
            )


def _list_shared_places(settings: Settings) -> list[tuple[Path, str]]:
    """List the folders that sandboxes of every principal read or write, each with what else may be changed."""
    places = [(each, "outside of the system's") for each in SYSTEM_PATHS]
    places += [(each, "or take the place out of sandbox.tool_roots") for each in settings.sandbox.tool_roots]
    for name, server in settings.mcp.servers.items():
        hint = f"or for mcp.servers.{name}, whose workspace may be the caller's"
        own = [server.workspace] if server.workspace not in ("", CALLERS_WORKSPACE) else []
        places += [(each, hint) for each in (*server.tool_roots, *own)]
    return [(Path(each).expanduser(), hint) for each, hint in places]


def _find_place_in(path: Path, folder: Path) -> Path | None:
    """Return the path, or a link on the way to it, if that lies in the folder or is the folder.

    Folders are compared by device and inode: a bind mount, or another spelling of a name, is the same folder.
    """
    with suppress(OSError):
        whole = _identity(folder)
        for place in _on_the_way_to(path):
            for above in (place, *place.parents):
                with suppress(OSError):
                    if _identity(above) == whole:
                        return place
    return None


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _refuse_own_places(
    root: Path, settings: Settings, state: Path, policy_dir: Path, settings_file: Path | None
) -> None:
    """Refuse a workspace that holds, or lies in, a place that Palyra itself depends on.

    Agents write the workspace. Its own folder in the state directory is allowed. A settings file that does not exist
    yet counts, because an agent could write it.
    """
    files = [*([settings_file] if settings_file else []), *_named_files(settings)]
    folders = [state, policy_dir]
    for place in (each for own in (*folders, *files) for each in _on_the_way_to(own)):
        if place == root or root in place.parents:
            raise WorkspaceHoldsPalyra(f"{root} holds {place}: it cannot be a workspace", path=str(root))
    meant = _real(state / OWN_WORKSPACE)
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
    *argument_tables.SCHEMA,
    *result_tables.SCHEMA,
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
