"""Which program a command names, as a value, and whether the profile lets it run at all."""

import errno
from typing import Final, Protocol

import msgspec

from palyra.sandbox.command import excerpt
from palyra.sandbox.outcome import ExecutableDenied, SpawnFailed
from palyra.sandbox.path_walk import Kind, base_name, is_beneath

# Where a distribution installs programs. Read-only inside the sandbox, so that no call can plant one there.
SYSTEM_ROOTS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")


class ResolvedExecutable(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the guards want to know about the file behind a command.

    ``found`` is where the lookup found it, ``real`` the file at the end of all links, ``passed`` the links between.
    ``twins`` are the names of programs on PATH that are the same file by inode or, for a file outside PATH, by content.
    ``marks`` are interpreters that the content betrays. ``shebang`` is the text after ``#!``, None for other files.
    """

    typed: str
    found: str
    real: str
    kind: Kind
    passed: tuple[str, ...] = ()
    executable: bool = True
    in_workspace: bool = False
    on_path: bool = False
    twins: frozenset[str] = frozenset()
    marks: frozenset[str] = frozenset()
    shebang: str | None = None
    # Whether the file starts as the kernel's own program format does.
    native: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that this program goes by, the one it is called by first."""
        own = (base_name(self.typed), *map(base_name, self.passed), base_name(self.real))
        return tuple(dict.fromkeys((*own, *sorted(self.twins))))


class ExecutableLookup(Protocol):
    def find(self, command: str, cwd: str) -> ResolvedExecutable | None:
        """The program as the sandbox's PATH and the given directory name it."""


def find_executable(lookup: ExecutableLookup, command: str, cwd: str) -> ResolvedExecutable:
    found = lookup.find(command, cwd)
    if found is None or found.kind is Kind.MISSING:
        raise SpawnFailed(
            f"there is no program {excerpt(command)!r} in the sandbox", argument="command", errno=errno.ENOENT
        )
    if found.kind in (Kind.UNREADABLE, Kind.LOOP, Kind.DIRECTORY) or (found.kind is Kind.FILE and not found.executable):
        raise SpawnFailed(
            f"{excerpt(command)!r} cannot be executed",
            argument="command",
            path=excerpt(found.real),
            errno=errno.EACCES,
        )
    return found


def refuse_unlisted_executable(
    found: ResolvedExecutable, allowed: tuple[str, ...] | None, readable_roots: tuple[str, ...] = SYSTEM_ROOTS
) -> None:
    """A listed name means the program of that name on PATH; a listed path means that file, however it is reached.

    With no list every program of the system and of the workspace may run that no later check refuses.
    """
    if found.kind is Kind.MAGIC:
        raise ExecutableDenied(
            f"{excerpt(found.typed)!r} leads to {excerpt(found.real)}, which is another file for every process",
            argument="command",
            path=excerpt(found.real),
        )
    if allowed is not None:
        by_name = found.on_path and base_name(found.found) in allowed
        by_path = found.found in allowed or found.real in allowed
        if not by_name and not by_path:
            raise ExecutableDenied(
                f"{excerpt(found.typed)!r} is not among the programs that this profile allows",
                argument="command",
                path=excerpt(found.real),
            )
        if by_path:
            return
    if not found.in_workspace and not any(is_beneath(found.real, root) for root in readable_roots):
        raise ExecutableDenied(
            f"{excerpt(found.typed)!r} is {excerpt(found.real)}, neither in the workspace nor a program of the system",
            argument="command",
            path=excerpt(found.real),
        )
