"""Which principal works in which workspace: exactly one for each call, chosen by the principal alone.

A full name goes before every glob. Two workspaces never name the same principal otherwise: globs that can both fit one
name are refused when the settings are read. So the order of the tables means nothing.
"""

import re
import string
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import combinations, product
from typing import Final

import msgspec

from palyra.errors import Denied, InvalidInput
from palyra.ids import Principal
from palyra.workspace.settings import WorkspaceTable

EVERYBODY: Final = ("*",)
_GROUP: Final = "group:"
_WILD: Final = re.compile(r"[*?\[]")
# The parts of a glob: a set of characters, or one character or wildcard.
_PARTS: Final = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)
# The characters of a principal.
_CHARACTERS: Final = string.ascii_letters + string.digits + "._@/+-:"


class NoWorkspace(Denied):
    code = "workspace.none_assigned"
    hint = "an operator names the principal in the who of a table in [workspaces], or in workspace.who"


class BadWho(InvalidInput):
    code = "workspace.bad_who"
    hint = "write a principal such as user:anna, a glob such as agent:web-*, or group:NAME with a name of access.groups"


class AmbiguousWho(InvalidInput):
    code = "workspace.ambiguous_who"
    hint = "each principal has one workspace: narrow one of the two, or write full names, which go before globs"


class AssignedWorkspace(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace and the principals that work in it, as globs. ``root`` is a real path where a gateway runs."""

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

    def describe(self) -> str:
        """Say who works where, in words."""
        rows = [f"{each.name}: {each.root} ({', '.join(each.who)})" for each in self.named]
        others = {(): "all others have none", EVERYBODY: f"all others: {self.default}"}
        rows.append(others.get(self.others, f"{', '.join(self.others)}: {self.default}"))
        return "; ".join(rows) if self.named else rows[0].replace("all others", "all principals")


@lru_cache(maxsize=4096)
def _find(workspaces: Workspaces, principal: str) -> str:
    """Look for the full name first: it goes before every glob."""
    for matches in (str.__eq__, fnmatchcase):
        for each in workspaces.named:
            if any(matches(principal, glob) for glob in each.who):
                return each.root
    return workspaces.default if any(fnmatchcase(principal, glob) for glob in workspaces.others) else ""


def assign_workspaces(
    tables: Mapping[str, WorkspaceTable], groups: Mapping[str, tuple[str, ...]]
) -> tuple[AssignedWorkspace, ...]:
    """Return the workspaces of the settings with their groups as globs. Refuse a principal that two of them name."""
    assigned = tuple(
        AssignedWorkspace(name=name, root=table.root, who=expand_who(table.who, groups))
        for name, table in tables.items()
    )
    for one, other in combinations(assigned, 2):
        both = set(one.who) & set(other.who)
        both |= {f"{a} and {b}" for a, b in product(_wild(one.who), _wild(other.who)) if a != b and fit_one_name(a, b)}
        if both:
            raise AmbiguousWho(f"{one.name} and {other.name} can name the same principal: {min(both)}")
    return assigned


def _wild(who: tuple[str, ...]) -> list[str]:
    return [each for each in who if _WILD.search(each)]


def expand_who(who: tuple[str, ...], groups: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Replace each group by its globs. Refuse what can never be a principal."""
    globs: list[str] = []
    for each in who:
        if each.startswith(_GROUP):
            name = each.removeprefix(_GROUP)
            if name not in groups:
                raise BadWho(f"there is no group {name!r}")
            globs += groups[name]
        else:
            if not _WILD.search(each):
                Principal.parse(each)
            elif not any(fit_one_name(each, f"{kind}:*") for kind in ("user", "agent")):
                raise BadWho(f"{each!r} fits no principal")
            globs.append(each)
    return tuple(dict.fromkeys(globs))


def fit_one_name(first: str, second: str) -> bool:
    """Return whether there is a name that fits both globs."""
    one, other = _PARTS.findall(first), _PARTS.findall(second)
    seen: set[tuple[int, int]] = set()
    ahead = [(0, 0)]
    while ahead:
        at, beside = ahead.pop()
        if (at, beside) in seen:
            continue
        seen.add((at, beside))
        if at == len(one) and beside == len(other):
            return True
        stars = at < len(one) and one[at] == "*", beside < len(other) and other[beside] == "*"
        # A star stands for nothing, or for one character of the other glob and then for more.
        if stars[0]:
            ahead.append((at + 1, beside))
        if stars[1]:
            ahead.append((at, beside + 1))
        if at < len(one) and beside < len(other) and _share_character(one[at], other[beside]):
            ahead.append((at + (not stars[0]), beside + (not stars[1])))
    return False


@lru_cache(maxsize=4096)
def _share_character(first: str, second: str) -> bool:
    return any(fnmatchcase(character, first) and fnmatchcase(character, second) for character in _CHARACTERS)
