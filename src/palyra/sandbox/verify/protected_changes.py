"""Protected names that a call added, changed, replaced or removed.

A mount on a missing name would leave an empty file on the host, and ``git init`` must work. So the workspace is scanned
before and after a call. A name that appeared is reported, and moved aside or kept, or it fails the call. A link with a
protected name cannot carry a mount either, so a changed link is treated the same way. Git's own files are judged by
their content, since ordinary commands write them.
"""

import contextlib
import errno
import os
from collections.abc import Callable
from typing import Any, Final

import msgspec

from palyra.errors import Denied, LimitExceeded
from palyra.sandbox.domain.facts import Change, Kind, Names, ProtectedChange
from palyra.sandbox.domain.git_files import judge_git_file, judge_hooks, target_of_pointer
from palyra.sandbox.domain.process_run import ProcessOutcome
from palyra.sandbox.domain.profile import Layer, NewProtectedPolicy, ReceiptLine, SandboxProfile
from palyra.sandbox.layers.protected_mounts import open_workspace_root
from palyra.sandbox.layers.workspace_scan import Found, WorkspaceScan, beneath, open_names, scan_workspace
from palyra.sandbox.limits import MAX_NEW_ENTRIES, MAX_REPORTED_NAMES
from palyra.workspace.names import ProtectedNames, decode_name, protected_names_of, render_name
from palyra.workspace.protected_table import ASIDE_NAME, REPOSITORY_PATTERN, watched_in_sandbox
from palyra.workspace.root import hold

# The list of what was moved, beside it.
LIST_NAME: Final = "moved.json"
_COMPLAINTS: Final = (b"Read-only file system", b"Device or resource busy", b"EROFS", b"EBUSY")


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


class ProtectedChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of one call. ``folder`` is where those are that were moved aside."""

    changes: tuple[ProtectedChange, ...]
    policy: NewProtectedPolicy
    shortfall: str = ""
    folder: str = ""
    # The last names of what was read-only, with their patterns.
    sealed: tuple[tuple[bytes, str], ...] = ()

    @property
    def harmful(self) -> tuple[ProtectedChange, ...]:
        return tuple(each for each in self.changes if not each.harmless)

    @property
    def notable(self) -> tuple[ProtectedChange, ...]:
        """The changes to report: those that could harm, and directories that look like repositories."""
        return tuple(each for each in self.changes if each.repository or not each.harmless)

    def line(self, before: ReceiptLine | None = None) -> ReceiptLine:
        """Continue the receipt's line on protected names with the changes of the call."""
        said = before.got if before else ""
        if self.changes:
            worst_first = sorted(self.changes, key=lambda each: each.harmless)
            listed = ", ".join(map(describe, worst_first[:MAX_REPORTED_NAMES]))
            more = max(len(self.changes) - MAX_REPORTED_NAMES, 0)
            after = f"{len(self.changes)} changed during the call: {listed}" + f" and {more} more" * bool(more)
            after += f"; moved ones are in {self.folder}" * bool(self.folder)
        else:
            after = "none appeared during the call"
        if self.shortfall:
            after += f"; the look after the call was cut short: {self.shortfall}"
        planted = self.policy is not NewProtectedPolicy.KEEP and bool(self.harmful)
        return ReceiptLine(
            layer=Layer.PROTECTED_NAMES,
            asked=before.asked if before else f"new ones: {self.policy.value}",
            got=f"{said}; {after}" if said else after,
            held=(before is None or before.held) and not self.shortfall and not planted,
        )

    def find_in_the_way(self, stderr: bytes) -> tuple[str, ...]:
        """Return the patterns of read-only names that the program complains about, so that the answer can name them."""
        if not any(words in stderr for words in _COMPLAINTS):
            return ()
        return tuple(dict.fromkeys(pattern for name, pattern in self.sealed if name in stderr))

    def refuse(self) -> None:
        """Raise if policy does not keep a new name and it still exists, or if the scan was cut short."""
        keeps = self.policy is NewProtectedPolicy.KEEP
        left = () if keeps else tuple(each for each in self.harmful if not (each.moved_to or each.put_back))
        if left:
            names = [render_names(each.names) for each in left[:MAX_REPORTED_NAMES]]
            raise ProtectedAppeared(
                f"{len(left)} protected names appeared during the call: {', '.join(names[:3])}", names=names
            )
        if self.shortfall:
            raise ProtectedUnseen(f"the workspace could not be looked through after the call: {self.shortfall}")


def render_names(names: Names) -> str:
    return render_name(decode_name(b"/".join(names))) or "."


def describe(each: ProtectedChange) -> str:
    parts = [f"{render_names(each.names)} {each.change}"]
    parts += [f"({each.why})"] if each.why else []
    parts += [f"moved aside as {each.moved_to}"] if each.moved_to else []
    parts += ["put back as it was"] if each.put_back else []
    parts += [each.problem] if each.problem else []
    return ", ".join(parts).replace(", (", " (")


def compare(root: int, before: WorkspaceScan, after: WorkspaceScan) -> tuple[ProtectedChange, ...]:
    """List the differences, in the order of names. The mounts protect the contents of sealed names."""
    place = os.readlink(b"/proc/self/fd/%d" % root)
    changes = [
        _judge(root, place, before.found.get(names), found)
        for names, found in after.found.items()
        if not _unchanged(before.found.get(names), found)
    ]
    unseen = before.unseen | after.unseen
    changes += [
        _judge_removed(root, place, found)
        for names, found in before.found.items()
        if names not in after.found and not beneath(names, unseen)
    ]
    changes += [
        ProtectedChange(
            names=names,
            change=Change.APPEARED,
            pattern=REPOSITORY_PATTERN,
            kind=Kind.DIRECTORY,
            why="git takes it for a repository",
            harmless=True,
            repository=True,
        )
        for names in after.repositories - before.repositories
    ]
    return tuple(sorted(changes, key=lambda each: each.names))


def judge_found(root: int, before: WorkspaceScan, found: Found) -> ProtectedChange | None:
    """Judge one name as it is now. None if nothing changed."""
    was = before.found.get(found.names)
    return None if _unchanged(was, found) else _judge(root, os.readlink(b"/proc/self/fd/%d" % root), was, found)


def _unchanged(before: Found | None, after: Found) -> bool:
    if before is None or (before.kind, before.target) != (after.kind, after.target):
        return False
    if after.judged and after.kind is Kind.FILE:
        return before.content is not None and before.content == after.content
    return before.identity == after.identity


def _judge(root: int, place: bytes, before: Found | None, after: Found) -> ProtectedChange:
    change = Change.APPEARED if before is None else Change.REPLACED
    if before is not None and before.sealed:
        # A mount covered it in the sandbox: only somebody outside can have replaced it.
        return _change(after, change, "from outside the sandbox", harmless=True)
    if after.names == (os.fsencode(ASIDE_NAME),) and after.kind is Kind.DIRECTORY:
        # Another call moved names there.
        return _change(after, change, "runs nothing", harmless=True)
    if not after.judged:
        return _change(after, change)
    if after.kind is Kind.FILE:
        change = Change.APPEARED if before is None else Change.CHANGED
        why = judge_git_file(after.names, after.content, before.content if before else None, place)
        if not why and after.names[-1] == b".git":
            why = _judge_target(root, place, after)
    elif after.kind is Kind.DIRECTORY and after.names[-1].lower() == b"hooks":
        why = judge_hooks(_list_hooks(root, after.names))
    else:
        why = f"a {after.kind.value} where git expects something else"
    return _change(after, change, why or "runs nothing", harmless=not why)


def _judge_target(root: int, place: bytes, pointer: Found) -> str:
    """Refuse a ``.git`` file that leads through a link: what lies there would not be judged."""
    target = target_of_pointer(pointer.names, pointer.content or b"", place)
    if target is None:
        return "points out of the repositories of this workspace"
    try:
        os.close(open_names(root, target))
    except OSError as error:
        return "" if error.errno == errno.ENOENT else "points at a repository through a link"
    return ""


def _list_hooks(root: int, names: Names) -> list[tuple[bytes, bool]]:
    try:
        with hold(open_names(root, names, os.O_RDONLY | os.O_DIRECTORY)) as folder, os.scandir(folder) as entries:
            return [(os.fsencode(each.name), each.is_file(follow_symlinks=False)) for each in entries]
    except OSError:
        return [(b"", False)]


def _judge_removed(root: int, place: bytes, before: Found) -> ProtectedChange:
    if before.sealed:
        return _change(before, Change.REMOVED, "from outside the sandbox", harmless=True)
    if before.kind is Kind.LINK:
        return _change(before, Change.REMOVED)
    if before.names[-1].lower() in (b".git", b"commondir", b"gitdir") or not _is_directory(root, before.names[:-1]):
        # Its whole repository is gone, or git reads nothing in the place of it.
        return _change(before, Change.REMOVED, harmless=True)
    why = judge_git_file(before.names, b"", before.content, place)
    return _change(before, Change.REMOVED, why, harmless=not why)


def _is_directory(root: int, names: Names) -> bool:
    try:
        os.close(open_names(root, names))
    except OSError:
        return False
    return True


def _change(found: Found, change: Change, why: str = "", *, harmless: bool = False) -> ProtectedChange:
    return ProtectedChange(
        names=found.names, change=change, pattern=found.pattern, kind=found.kind, why=why, harmless=harmless
    )


def look_again(
    profile: SandboxProfile,
    before: WorkspaceScan,
    machine: ProtectedNames | None = None,
    *,
    aside: str | Callable[[], str] | None = None,
    earlier: tuple[ProtectedChange, ...] = (),
) -> ProtectedChanges:
    """Scan the workspace after the last process of the sandbox has ended.

    ``aside`` is a directory outside the workspace, for this call, or makes one if there is something to move.
    ``earlier`` are the changes that were moved there while the program ran.
    """
    folder = ""
    with hold(open_workspace_root(profile.workspace_root)) as root:
        after = scan_workspace(
            root,
            machine or protected_names_of(watched_in_sandbox(profile.protected_names)),
            most=before.entries + MAX_NEW_ENTRIES,
            # Nothing in them could change.
            without=before.unseen,
        )
        changes = compare(root, before, after)
        if profile.appearing_protected is NewProtectedPolicy.MOVE_ASIDE and not all(each.harmless for each in changes):
            folder, changes = MovingAside(root, profile.workspace_root, before, aside, earlier).move(changes)
    return ProtectedChanges(
        changes=changes,
        policy=profile.appearing_protected,
        shortfall=after.shortfall,
        folder=folder,
        sealed=tuple((names[-1], each.pattern) for names, each in before.found.items() if each.sealed),
    )


class MovingAside:
    """Move planted names to a place where no tool looks, and put back what they took the place of.

    A list of what is to be moved is written first, so that even a crash in between leaves nothing unexplained. On
    another file system the place is a sealed folder in the workspace.
    """

    def __init__(
        self,
        root: int,
        workspace: str,
        before: WorkspaceScan,
        aside: str | Callable[[], str] | None,
        earlier: tuple[ProtectedChange, ...] = (),
    ) -> None:
        self._earlier = earlier
        self._root = root
        self._workspace = workspace
        self._before = before
        self._aside = aside

    def move(self, changes: tuple[ProtectedChange, ...]) -> tuple[str, tuple[ProtectedChange, ...]]:
        """Return the folder, and the changes with what became of each."""
        try:
            folder = self._make_folder(changes)
        except OSError as error:
            problem = f"not moved: {error.strerror}"
            return "", tuple(
                each if each.harmless else msgspec.structs.replace(each, problem=problem) for each in changes
            )
        if not folder:
            problem = "no place to move it to"
            return "", tuple(
                each if each.harmless else msgspec.structs.replace(each, problem=problem) for each in changes
            )
        with hold(os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as opened:
            done = tuple(
                self._move_one(opened, number, each) for number, each in enumerate(changes, len(self._earlier))
            )
        return folder, done

    def _make_folder(self, changes: tuple[ProtectedChange, ...]) -> str:
        folder = self._aside() if callable(self._aside) else self._aside
        if folder is None:
            return ""
        if os.stat(folder).st_dev != os.fstat(self._root).st_dev:
            with contextlib.suppress(OSError):
                os.rmdir(folder)
            folder = self._make_inside(os.path.basename(folder))
        rows = [
            {"moved_to": f"{number:04d}", "name": render_names(each.names), "why": each.why, "pattern": each.pattern}
            for number, each in enumerate((*self._earlier, *changes))
            if not each.harmless
        ]
        listed = {"workspace": self._workspace, "moved": rows}
        with open(f"{folder}/{LIST_NAME}", "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(listed), indent=1))
        return folder

    def _make_inside(self, name: str) -> str:
        """Make a folder in the workspace. Programs find it read-only, and it has no name that a tool reads."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(ASIDE_NAME, 0o700, dir_fd=self._root)
        with hold(open_names(self._root, (os.fsencode(ASIDE_NAME),))) as parent:
            os.mkdir(name, 0o700, dir_fd=parent)
        return f"{self._workspace}/{ASIDE_NAME}/{name}"

    def _move_one(self, folder: int, number: int, each: ProtectedChange) -> ProtectedChange:
        if each.harmless:
            return each
        # Not the program's own name, which may have any bytes.
        name = f"{number:04d}"
        moved = ""
        try:
            if each.change is not Change.REMOVED:
                with hold(_parent(self._root, each.names)) as parent:
                    os.rename(each.names[-1], name, src_dir_fd=parent, dst_dir_fd=folder)
                moved = name
            put_back = self._put_back(each)
        except FileNotFoundError:
            # A link led to it, and what held it is moved already.
            return msgspec.structs.replace(each, moved_to=moved, harmless=not moved, why=each.why or "gone by now")
        except OSError as error:
            elsewhere = error.errno == errno.EXDEV
            problem = "on another file system than the place for it" if elsewhere else str(error.strerror)
            what = "not put back" if moved or each.change is Change.REMOVED else "not moved"
            return msgspec.structs.replace(each, moved_to=moved, problem=f"{what}: {problem}")
        return msgspec.structs.replace(each, moved_to=moved, put_back=put_back)

    def _put_back(self, each: ProtectedChange) -> bool:
        """Make a replaced or removed name again as it was."""
        was = self._before.found.get(each.names)
        if was is None or was.sealed:
            return False
        with hold(_parent(self._root, each.names)) as parent:
            if was.kind is Kind.LINK:
                os.symlink(was.target, each.names[-1], dir_fd=parent)
            elif was.content is not None:
                _write_new(parent, each.names[-1], was.content, was.mode)
            else:
                return False
        return True


def _write_new(parent: int, name: bytes, content: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with hold(os.open(name, flags, mode, dir_fd=parent)) as file:
        os.fchmod(file, mode)
        while content:
            content = content[os.write(file, content) :]


def _parent(root: int, names: Names) -> int:
    return open_names(root, names[:-1])
