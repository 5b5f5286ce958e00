"""The tree of settings: sections, keys, defaults, bounds, and one line on each.

The types are the single source: validation, ``palyra config show`` and the reference page are all read from them.
"""

from typing import Annotated

import msgspec

from palyra.config.setting_types import Pattern, Patterns, describe
from palyra.workspace.protected_table import PROTECTED_NAMES, ProtectedGroup, leave_out


class WorkspaceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    root: Annotated[
        str,
        describe("Folder that calls work in, which has to be there; empty means `workspace` in the state directory."),
    ] = ""
    who: Annotated[
        Patterns,
        describe("Who works in `root`, of those that no table of `[workspaces]` names; `[]` refuses all others."),
    ] = ("*",)
    protected_names: Annotated[Patterns, describe("Names beneath the root that no tool may write, as globs.")] = (
        PROTECTED_NAMES
    )
    open_groups: Annotated[
        tuple[ProtectedGroup, ...], describe("Groups of the built-in protected names that agents may write after all.")
    ] = ()

    @property
    def protected(self) -> tuple[str, ...]:
        """The names that are protected: those of the opened groups are left out."""
        return leave_out(self.protected_names, self.open_groups)


class WorkspaceTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A folder and who works in it: principals, globs over them, and ``group:NAME`` for a group of the settings."""

    root: Annotated[str, msgspec.Meta(min_length=1, max_length=4_096)]
    who: Annotated[tuple[Pattern, ...], msgspec.Meta(min_length=1, max_length=1_024)]


WorkspaceName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
