"""Every path that an argument names must lie in the workspace, after all links and ``..`` are followed.

The kernel enforces the same in Tier C; this check gives a clear refusal before anything runs. Readable besides the
workspace are a few devices with a fixed meaning and the system's own directories, /usr above all: compilers are told
-I/usr/include, and inside the sandbox nobody can write there. No argument is ever changed.
"""

import re
from typing import Final

from palyra.sandbox.argument_paths import NamedPath, RemoteFile, named_paths, names_home
from palyra.sandbox.command import ProcessCommand, excerpt
from palyra.sandbox.executables import SYSTEM_ROOTS
from palyra.sandbox.interpreters import plain_name
from palyra.sandbox.outcome import InvalidCommand, WorkspaceScopeDenied
from palyra.sandbox.path_walk import Kind, PathLook, base_name, is_beneath, join, walk
from palyra.sandbox.text_arguments import code_places, text_places

DEVICES: Final = frozenset(
    {"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/full"}
)
# In their arguments host:path is a path on another machine.
_TAKES_REMOTE_PATHS: Final = frozenset({"scp", "rsync", "git", "ssh"})
_REMOTE: Final = re.compile(r"([A-Za-z0-9_.-]+@)?(?!-)([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):(?!//).*", re.DOTALL)


def resolve_cwd(cwd: str | None, workspace_root: str, resolver: PathLook) -> str:
    """The working directory, absolute: the workspace itself, or a directory in it. It is returned as written."""
    root = walk(workspace_root, resolver)
    wanted = workspace_root if cwd is None else join(workspace_root, cwd)
    walked = root if cwd is None else walk(wanted, resolver)
    if walked.kind is Kind.MAGIC or not is_beneath(walked.real, root.real):
        raise WorkspaceScopeDenied(
            f"the working directory {excerpt(wanted)} leads out of the workspace",
            argument="cwd",
            path=excerpt(walked.real),
        )
    if walked.kind is not Kind.DIRECTORY:
        raise InvalidCommand(f"the working directory {excerpt(wanted)} is no directory", argument="cwd")
    return walked.real


def validate_argument_workspace_scope(
    command: ProcessCommand,
    workspace_root: str,
    cwd: str,
    resolver: PathLook,
    readable_roots: tuple[str, ...] = SYSTEM_ROOTS,
) -> None:
    """Raises ``WorkspaceScopeDenied`` naming the first argument that leads out, and where it leads."""
    if not command.args:
        return
    scope = _Scope(walk(workspace_root, resolver).real, cwd, resolver, readable_roots)
    text = text_places(command.command, command.args)
    texts = text.texts | code_places(command.command, command.args)
    for position, path in text.files:
        scope.refuse(position, path, NamedPath(path))
    remote = plain_name(base_name(command.command)) in _TAKES_REMOTE_PATHS
    for position, word in enumerate(command.args):
        # What starts with @ is read from a file even where text is taken.
        if position in texts and not word.startswith("@"):
            continue
        if remote and _REMOTE.fullmatch(word):
            scope.refuse(position, word, NamedPath(word))
            continue
        for named in named_paths(word):
            if isinstance(named, RemoteFile):
                raise _denied(position, word, f"names a file of the machine {excerpt(named.text)}", named.text)
            scope.refuse(position, word, named)


class _Scope:
    def __init__(self, root: str, cwd: str, resolver: PathLook, readable_roots: tuple[str, ...]) -> None:
        self.root = root
        self.cwd = cwd
        self.resolver = resolver
        self.readable_roots = readable_roots

    def refuse(self, position: int, word: str, named: NamedPath) -> None:
        path = named.text
        if path in DEVICES:
            return
        if names_home(path):
            raise _denied(position, word, "names a home directory", path)
        walked = walk(join(self.cwd, path), self.resolver, ends=DEVICES)
        if walked.kind is Kind.MAGIC:
            raise _denied(
                position, word, f"leads to {excerpt(walked.real)}, which is another file for every process", walked.real
            )
        if walked.kind in (Kind.LOOP, Kind.UNREADABLE):
            raise _denied(position, word, f"cannot be followed beyond {excerpt(walked.real)}", walked.real)
        if is_beneath(walked.real, self.root) or walked.real in DEVICES:
            return
        if any(is_beneath(walked.real, root) for root in self.readable_roots):
            return
        if named.guess and self._is_not_there(path):
            return
        raise _denied(position, word, f"leads to {excerpt(walked.real)}, outside the workspace", walked.real)

    def _is_not_there(self, path: str) -> bool:
        """-Iinclude/sys is a directory of the workspace unless / has a directory sys, and https://x a URL unless there
        is a directory of that name."""
        first = path.lstrip("/").partition("/")[0]
        return self.resolver.look(join("/" if path.startswith("/") else self.cwd, first)).kind is Kind.MISSING


def _denied(position: int, word: str, what: str, path: str) -> WorkspaceScopeDenied:
    return WorkspaceScopeDenied(
        f"args[{position}] {excerpt(word)!r} {what}", argument=f"args[{position}]", path=excerpt(path)
    )
