"""Which principal works in which workspace: exactly one for each call, chosen by the principal alone."""

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

import msgspec

from palyra.errors import Denied
from palyra.ids import Principal

EVERYBODY: Final = ("*",)


class NoWorkspace(Denied):
    code = "workspace.none_assigned"
    hint = "an operator names the principal in the who of a table in [workspaces], or in workspace.who"


class AssignedWorkspace(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace and the principals that work in it, as globs. ``root`` is a real path."""

    name: str
    root: str
    who: tuple[str, ...]


class Workspaces(msgspec.Struct, frozen=True, kw_only=True):
    """The workspace of each principal: the one that names it, else the default for those that may work there."""

    default: str
    # Who works in the default, among those that no other workspace names.
    others: tuple[str, ...] = EVERYBODY
    named: tuple[AssignedWorkspace, ...] = ()

    def find(self, principal: Principal) -> str:
        """Return the root of a principal's workspace, or an empty text if it has none."""
        if not self.named and self.others == EVERYBODY:
            return self.default
        return _find(self, str(principal))

    def of(self, principal: Principal) -> str:
        """Return the root of a principal's workspace. Raise ``workspace.none_assigned`` if it has none."""
        root = self.find(principal)
        if not root:
            raise NoWorkspace(f"no workspace is assigned to {principal}")
        return root


@lru_cache(maxsize=4096)
def _find(workspaces: Workspaces, principal: str) -> str:
    """Look for the full name first: it goes before every pattern."""
    for matches in (str.__eq__, fnmatchcase):
        for each in workspaces.named:
            if any(matches(principal, pattern) for pattern in each.who):
                return each.root
    return workspaces.default if any(fnmatchcase(principal, pattern) for pattern in workspaces.others) else ""
