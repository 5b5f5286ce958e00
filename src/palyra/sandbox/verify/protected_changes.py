"""Protected names that a call added, replaced or removed.

A mount on a missing name would leave an empty file on the host, and ``git init`` must work. So the workspace is scanned
before and after a call. A name that appeared is reported, and kept or moved aside, or it fails the call. A link with a
protected name cannot carry a mount either, so a changed link is treated the same way.
"""

import errno
import os
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec

from palyra.errors import Denied, LimitExceeded
from palyra.sandbox.domain.facts import Kind, Names
from palyra.sandbox.domain.process_run import ProcessOutcome
from palyra.sandbox.domain.profile import Layer, NewProtectedPolicy, ReceiptLine, SandboxProfile
from palyra.sandbox.layers.protected_mounts import open_workspace_root
from palyra.sandbox.layers.workspace_scan import Found, WorkspaceScan, beneath, open_names, scan_workspace
from palyra.sandbox.limits import MAX_NEW_ENTRIES, MAX_REPORTED_NAMES
from palyra.workspace.names import ProtectedNames, decode_name, protected_names_of, render_name
from palyra.workspace.protected_table import watched_in_sandbox
from palyra.workspace.root import hold


class ProtectedAppeared(Denied):
    code = "sandbox.protected_appeared"
    hint = "the program made files that only an operator may make; look at them before you use the workspace"

    def __init__(self, message: str, *, hint: str | None = None, **details: Any) -> None:
        super().__init__(message, hint=hint, **details)
        self.outcome: ProcessOutcome | None = None


class ProtectedUnseen(LimitExceeded):
    code = "sandbox.protected_unseen"
    hint = "the program left more behind than can be looked through for protected names; remove it before you use it"

    def __init__(self, message: str, *, hint: str | None = None, **details: Any) -> None:
        super().__init__(message, hint=hint, **details)
        self.outcome: ProcessOutcome | None = None


class Change(StrEnum):
    APPEARED = "appeared"
    REPLACED = "replaced"
    REMOVED = "removed"


class Appeared(msgspec.Struct, frozen=True, kw_only=True):
    """One change. ``moved_to`` is its name in the folder for moved names; ``problem`` is why it was not moved."""

    names: Names
    change: Change
    pattern: str
    kind: Kind
    moved_to: str = ""
    problem: str = ""

    def render(self) -> str:
        return render_name(decode_name(b"/".join(self.names)))

    def describe(self) -> str:
        where = f", moved aside as {self.moved_to}" if self.moved_to else f", {self.problem}" if self.problem else ""
        return f"{self.render()} {self.change}{where}"


class ProtectedChanges(msgspec.Struct, frozen=True, kw_only=True):
    changes: tuple[Appeared, ...]
    policy: NewProtectedPolicy
    shortfall: str = ""

    def line(self, before: ReceiptLine | None = None) -> ReceiptLine:
        """Continue the receipt's line on protected names with the changes of the call."""
        said = before.got if before else ""
        if self.changes:
            listed = ", ".join(each.describe() for each in self.changes[:MAX_REPORTED_NAMES])
            more = max(len(self.changes) - MAX_REPORTED_NAMES, 0)
            after = f"{len(self.changes)} changed during the call: {listed}" + f" and {more} more" * bool(more)
        else:
            after = "none appeared during the call"
        if self.shortfall:
            after += f"; the look after the call was cut short: {self.shortfall}"
        return ReceiptLine(
            layer=Layer.PROTECTED_NAMES,
            asked=before.asked if before else f"new ones: {self.policy.value}",
            got=f"{said}; {after}" if said else after,
            held=(before is None or before.held) and not self.shortfall and not self._left(),
        )

    def _left(self) -> tuple[Appeared, ...]:
        return (
            () if self.policy is NewProtectedPolicy.KEEP else tuple(each for each in self.changes if not each.moved_to)
        )

    def refuse(self) -> None:
        """Raise if policy does not keep a new name and it still exists, or if the scan was cut short."""
        left = self._left()
        if left:
            names = [each.render() for each in left[:MAX_REPORTED_NAMES]]
            raise ProtectedAppeared(
                f"{len(left)} protected names appeared during the call: {', '.join(names[:3])}", names=names
            )
        if self.shortfall:
            raise ProtectedUnseen(f"the workspace could not be looked through after the call: {self.shortfall}")


def compare(before: WorkspaceScan, after: WorkspaceScan) -> tuple[Appeared, ...]:
    """List the differences, in the order of names. The mounts protect the contents of existing names."""
    changes = [
        _change(found, Change.REPLACED if names in before.found else Change.APPEARED)
        for names, found in after.found.items()
        if not _unchanged(before.found.get(names), found)
    ]
    unseen = before.unseen | after.unseen
    changes += [
        _change(found, Change.REMOVED)
        for names, found in before.found.items()
        if names not in after.found and not beneath(names, unseen)
    ]
    return tuple(sorted(changes, key=lambda each: each.names))


def _unchanged(before: Found | None, after: Found) -> bool:
    return before is not None and (before.identity, before.kind, before.target) == (
        after.identity,
        after.kind,
        after.target,
    )


def _change(found: Found, change: Change) -> Appeared:
    return Appeared(names=found.names, change=change, pattern=found.pattern, kind=found.kind)


def look_again(
    profile: SandboxProfile,
    before: WorkspaceScan,
    machine: ProtectedNames | None = None,
    *,
    aside: str | Callable[[], str] | None = None,
) -> ProtectedChanges:
    """Scan the workspace after the last process of the sandbox has ended.

    ``aside`` is a directory outside the workspace, for this call, or makes one if there is something to move.
    """
    with hold(open_workspace_root(profile.workspace_root)) as root:
        after = scan_workspace(
            root,
            machine or protected_names_of(watched_in_sandbox(profile.protected_names)),
            most=before.entries + MAX_NEW_ENTRIES,
            # Nothing in them could change.
            without=before.unseen,
        )
        changes = compare(before, after)
        if profile.appearing_protected is NewProtectedPolicy.MOVE_ASIDE and changes:
            changes = _move_aside(root, changes, before, aside() if callable(aside) else aside)
    return ProtectedChanges(changes=changes, policy=profile.appearing_protected, shortfall=after.shortfall)


def _move_aside(
    root: int, changes: tuple[Appeared, ...], before: WorkspaceScan, aside: str | None
) -> tuple[Appeared, ...]:
    if aside is None:
        return tuple(msgspec.structs.replace(each, problem="no place to move it to") for each in changes)
    done: list[Appeared] = []
    with hold(os.open(aside, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as folder:
        for number, each in enumerate(changes):
            # Not the program's own name, which may have any bytes.
            name = f"{number:04d}"
            try:
                _move(root, each, folder, name)
                _put_back(root, each, before)
            except OSError as error:
                elsewhere = error.errno == errno.EXDEV
                problem = "on another file system than the place for it" if elsewhere else str(error.strerror)
                done.append(msgspec.structs.replace(each, problem=f"not moved: {problem}"))
            else:
                done.append(msgspec.structs.replace(each, moved_to=name))
    return tuple(done)


def _move(root: int, each: Appeared, folder: int, name: str) -> None:
    if each.change is Change.REMOVED:
        return
    with hold(_parent(root, each.names)) as parent:
        os.rename(each.names[-1], name, src_dir_fd=parent, dst_dir_fd=folder)


def _put_back(root: int, each: Appeared, before: WorkspaceScan) -> None:
    """Make a replaced or removed link again as it was."""
    was = before.found.get(each.names)
    if was is not None and was.kind is Kind.LINK:
        with hold(_parent(root, each.names)) as parent:
            os.symlink(was.target, each.names[-1], dir_fd=parent)


def _parent(root: int, names: Names) -> int:
    return open_names(root, names[:-1])
