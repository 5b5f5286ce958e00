"""Whether a command line runs a program of the caller's choosing: an interpreter, or a program that runs programs.

A program is judged by every name it goes by, so that a link, a copy or an applet is judged as what it really is.
"""

import re
from functools import lru_cache
from typing import Final

from palyra.sandbox.interpreters import MAX_REMEMBERED_NAMES, interpreter_named, is_dynamic_loader, plain_name
from palyra.sandbox.runner import ASKS_FOR_HELP, Finding, Runner, runner_finding
from palyra.sandbox.runner_table import RUNNERS

_VERSION: Final = re.compile(r"[-.]?\d[\d.]*([-.](posix|win32|basic|tiny|nox|gtk3|small))?$")
_MULTI_CALL: Final = frozenset({"busybox", "toybox", "coreutils"})
# Programs of their own whose names begin so.
_NOT_OF_GIT: Final = frozenset({"git-lfs", "git-shell", "git-crypt", "git-annex", "git-absorb"})
_BY_NAME: Final[dict[str, Runner]] = {name: runner for runner in RUNNERS for name in runner.names}


def finding_in(
    names: tuple[str, ...],
    args: tuple[str, ...],
    stdin: bytes | None = b"",
    *,
    marks: frozenset[str] = frozenset(),
    invented: frozenset[str] = frozenset(),
) -> Finding | None:
    """Whether a program that goes by these names would run another one with these arguments and this input.

    The first name is the one it is called by. ``marks`` are programs that its content betrays. ``invented`` are names
    that somebody gave to a program of their own: ./task is not the task runner, though ./python3 is refused.
    """
    multi_call = next(filter(None, map(_multi_call, (*names, *marks))), None)
    if multi_call is not None:
        # Every applet is the same file, so only the name it is called by says which one this is.
        if found := _multi_call_finding(multi_call, names[0], args, stdin):
            return found
        names = ()
    if names and names[0].startswith("git-") and names[0] not in _NOT_OF_GIT:
        names, args = ("git", *names[1:]), (names[0].removeprefix("git-"), *args)
    for name in (*names, *sorted(marks - _MULTI_CALL)):
        if found := _finding_by_name(name, args, stdin, invented=name in invented):
            return found
    return None


def _finding_by_name(name: str, args: tuple[str, ...], stdin: bytes | None, *, invented: bool) -> Finding | None:
    if interpreter := interpreter_named(name):
        return Finding(program=interpreter, why=f"{interpreter} runs whatever text it is given")
    if is_dynamic_loader(name):
        if args in ASKS_FOR_HELP or args == ("--list-diagnostics",):
            return None
        return Finding(program=name, why="the dynamic loader runs the program it is given", position=_first(args))
    runner = None if invented else runner_named(name)
    return None if runner is None else runner_finding(runner, name, args, stdin)


@lru_cache(maxsize=MAX_REMEMBERED_NAMES)
def runner_named(name: str) -> Runner | None:
    """The entry for a name in any spelling: ``x86_64-linux-gnu-gcc-12``, ``vim.basic`` and ``GIT.exe`` too."""
    plain = plain_name(name)
    for guess in (plain, _VERSION.sub("", plain), plain.partition(".")[0], _stem(name)):
        if guess in _BY_NAME:
            return _BY_NAME[guess]
    return None


def _stem(name: str) -> str:
    """Without a version and without the machine that a cross compiler is for."""
    return _VERSION.sub("", plain_name(name)).rpartition("-")[2]


@lru_cache(maxsize=MAX_REMEMBERED_NAMES)
def _multi_call(name: str) -> str | None:
    """``busybox`` for busybox, busybox.static, busybox-static and busybox1.36: it looks at how its name begins."""
    plain = plain_name(name)
    return next((binary for binary in _MULTI_CALL if re.fullmatch(rf"{binary}([-._\d].*)?", plain)), None)


def _first(args: tuple[str, ...]) -> int | None:
    return 0 if args else None


def _multi_call_finding(binary: str, typed: str, args: tuple[str, ...], stdin: bytes | None) -> Finding | None:
    """One binary that is many programs: called by its own name, the first argument says which."""
    if _multi_call(typed) is None:
        applet, rest = typed, args
    elif not args or args[0] in ("--list", "--list-full", "--help", "--version"):
        return None
    else:
        applet, rest = args[0].rpartition("=")[2] if args[0].startswith("--") else args[0], args[1:]
        if args[0].startswith("--") and not args[0].startswith("--coreutils-prog"):
            return Finding(program=binary, why=f"{binary} is many programs in one", position=0)
    if _multi_call(applet) is not None:
        return Finding(program=binary, why=f"{binary} runs its applets, shells among them", position=0)
    return finding_in((applet.rpartition("/")[2],), rest, stdin)
