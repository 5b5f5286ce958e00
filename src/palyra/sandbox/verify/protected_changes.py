"""Protected names that were not there before a call and are there after it.

No mount can hold a name that does not exist without leaving a ghost of it on the host, and ``git init`` must work. So
the workspace is looked through before and after, and what appeared is named, and kept, moved aside, or fails the call.
A link with a protected name cannot carry a mount either: it is treated the same way when it was changed.
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
from palyra.workspace.openat2 import hold


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
    """One change. ``moved_to`` is its name among things moved aside; ``problem`` says why it is still there."""

    names: Names
    change: Change
    pattern: str
    kind: Kind
    moved_to: str = ""
    problem: str = ""

    def render(self) -> str:
        return render_name(decode_name(b"/".join(self.names)))


class ProtectedChanges(msgspec.Struct, frozen=True, kw_only=True):
    changes: tuple[Appeared, ...]
    policy: NewProtectedPolicy
    shortfall: str = ""

    def line(self, before: ReceiptLine | None = None) -> ReceiptLine:
        """The receipt's line on protected names, continued with what was seen after the call."""
        said = before.got if before else ""
        if self.changes:
            told = [_told(each) for each in self.changes[:MAX_REPORTED_NAMES]]
            more = len(self.changes) - len(told)
            after = (
                f"{len(self.changes)} changed during the call: " + ", ".join(told) + (f" and {more} more" * bool(more))
            )
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
        """Raises where policy does not keep what appeared and it is still there, or where there may be more of it."""
        left = self._left()
        if left:
            names = [each.render() for each in left[:MAX_REPORTED_NAMES]]
            raise ProtectedAppeared(
                f"{len(left)} protected names appeared during the call: {', '.join(names[:3])}", names=names
            )
        if self.shortfall:
            raise ProtectedUnseen(f"the workspace could not be looked through after the call: {self.shortfall}")


def _told(each: Appeared) -> str:
    where = f", moved aside as {each.moved_to}" if each.moved_to else f", {each.problem}" if each.problem else ""
    return f"{each.render()} {each.change}{where}"


def compare(before: WorkspaceScan, after: WorkspaceScan) -> tuple[Appeared, ...]:
    """What differs, in the order of names. Contents of what was there are the mounts' business."""
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
    """For when nothing of the sandbox runs any more. ``aside`` is a directory outside the workspace, for this call, or
    makes one when there is something to move."""
    with hold(open_workspace_root(profile.workspace_root)) as root:
        after = scan_workspace(
            root,
            machine or protected_names_of(profile.protected_names),
            most=before.entries + MAX_NEW_ENTRIES,
            # Nothing in them could change.
            without=before.unseen,
        )
        changes = compare(before, after)
        if profile.appearing_protected is NewProtectedPolicy.MOVE_ASIDE and changes:
            changes = _moved_aside(root, changes, before, aside() if callable(aside) else aside)
    return ProtectedChanges(changes=changes, policy=profile.appearing_protected, shortfall=after.shortfall)


def _moved_aside(
    root: int, changes: tuple[Appeared, ...], before: WorkspaceScan, aside: str | None
) -> tuple[Appeared, ...]:
    if aside is None:
        return tuple(msgspec.structs.replace(each, problem="no place to move it to") for each in changes)
    done: list[Appeared] = []
    with hold(os.open(aside, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as shelf:
        for number, each in enumerate(changes):
            # The name is ours: the program's own could be anything.
            name = f"{number:04d}"
            try:
                _move(root, each, shelf, name)
                _put_back(root, each, before)
            except OSError as error:
                elsewhere = error.errno == errno.EXDEV
                problem = "on another file system than the place for it" if elsewhere else str(error.strerror)
                done.append(msgspec.structs.replace(each, problem=f"not moved: {problem}"))
            else:
                done.append(msgspec.structs.replace(each, moved_to=name))
    return tuple(done)


def _move(root: int, each: Appeared, shelf: int, name: str) -> None:
    if each.change is Change.REMOVED:
        return
    with hold(_parent(root, each.names)) as parent:
        os.rename(each.names[-1], name, src_dir_fd=parent, dst_dir_fd=shelf)


def _put_back(root: int, each: Appeared, before: WorkspaceScan) -> None:
    """A link that was replaced or removed is made again as it was."""
    was = before.found.get(each.names)
    if was is not None and was.kind is Kind.LINK:
        with hold(_parent(root, each.names)) as parent:
            os.symlink(was.target, each.names[-1], dir_fd=parent)


def _parent(root: int, names: Names) -> int:
    return open_names(root, names[:-1])
