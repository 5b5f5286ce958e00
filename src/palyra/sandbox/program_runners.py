"""Programs that run other programs for whoever calls them, and how to tell from the arguments that they will.

A ``Runner`` is data: the names it goes by, why it is refused, and which of its options, subcommands or texts make it run
something. A use that runs nothing (``git status``, ``tar -xzf a.tgz``, ``find . -name x``) is no finding. Where the
reading of an argument is in doubt, the reading that runs a program counts.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

import msgspec

from palyra.sandbox.interpreters import interpreter_named, is_dynamic_loader, plain_name

_VERSION: Final = re.compile(r"[-.]?\d[\d.]*([-.](posix|win32|basic|tiny|nox|gtk3|small))?$")
_ASKS_FOR_HELP: Final = (("--version",), ("--help",), ("-V",), ("-version",))
_MULTI_CALL: Final = frozenset({"busybox", "toybox", "coreutils"})


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """``position`` is the argument that gives it away, counted from 0; None is the program itself or its input."""

    program: str
    why: str
    position: int | None = None


class Runner(msgspec.Struct, frozen=True, kw_only=True):
    """How one program runs others.

    ``flags`` are written as they are typed. ``--long`` is also found abbreviated; ``-x`` also inside ``-axb`` where
    ``clusters``; ``-word`` only whole. After ``=`` comes a pattern that the option's value must begin with.
    ``valued`` are the short options whose value is the rest of the word, so that no option hides behind them.
    ``subcommands``, where given, are the only first words that run nothing. ``text`` is looked for in every argument,
    and in the input where ``reads_input``.
    """

    names: tuple[str, ...]
    why: str
    always: bool = False
    flags: tuple[str, ...] = ()
    valued: str = ""
    clusters: bool = True
    harmless: tuple[str, ...] = ()
    subcommands: frozenset[str] | None = None
    text: str = ""
    reads_input: bool = False
    unless: str = ""
    judge: Callable[[tuple[str, ...]], Finding | None] | None = None


def finding_in(names: tuple[str, ...], args: tuple[str, ...], stdin: bytes = b"") -> Finding | None:
    """Whether a program that goes by these names would run another one with these arguments and this input."""
    multi_call = next((name for name in map(_stem, names) if name in _MULTI_CALL), None)
    if multi_call is not None:
        return _multi_call_finding(multi_call, names[0], args, stdin)
    for name in names:
        if interpreter := interpreter_named(name):
            return Finding(program=interpreter, why=f"{interpreter} runs whatever text it is given")
        if is_dynamic_loader(name):
            if args in _ASKS_FOR_HELP or args == ("--list-diagnostics",):
                return None
            return Finding(program=name, why="the dynamic loader runs the program it is given", position=_first(args))
        if name.startswith("git-") and name != "git-lfs":
            name, args = "git", (name.removeprefix("git-"), *args)
        runner = runner_named(name)
        if runner is not None and (found := runner_finding(runner, name, args, stdin)):
            return found
    return None


def runner_named(name: str) -> Runner | None:
    """The entry for a name in any spelling: ``x86_64-linux-gnu-gcc-12``, ``vim.basic`` and ``GIT.exe`` too."""
    table = _table()
    plain = plain_name(name)
    for guess in (plain, _VERSION.sub("", plain), plain.partition(".")[0], _stem(name)):
        if guess in table:
            return table[guess]
    return None


@lru_cache(maxsize=1)
def _table() -> dict[str, Runner]:
    # The table's own judges know Finding, which is defined here.
    from palyra.sandbox.runner_table import RUNNERS

    return {name: runner for runner in RUNNERS for name in runner.names}


def _stem(name: str) -> str:
    """Without a version and without the machine that a cross compiler is for."""
    return _VERSION.sub("", plain_name(name)).rpartition("-")[2]


def _first(args: tuple[str, ...]) -> int | None:
    return 0 if args else None


def _multi_call_finding(binary: str, typed: str, args: tuple[str, ...], stdin: bytes) -> Finding | None:
    """One binary that is many programs: called by its own name, the first argument says which."""
    if _stem(typed) not in _MULTI_CALL:
        applet, rest = typed, args
    elif not args or args[0] in ("--list", "--list-full", "--help", "--version"):
        return None
    else:
        applet, rest = args[0].rpartition("=")[2] if args[0].startswith("--") else args[0], args[1:]
        if args[0].startswith("--") and not args[0].startswith("--coreutils-prog"):
            return Finding(program=binary, why=f"{binary} is many programs in one", position=0)
    if _stem(applet) in _MULTI_CALL:
        return Finding(program=binary, why=f"{binary} runs its applets, shells among them", position=0)
    return finding_in((applet.rpartition("/")[2],), rest, stdin)


def runner_finding(runner: Runner, name: str, args: tuple[str, ...], stdin: bytes) -> Finding | None:
    if args in _ASKS_FOR_HELP or (runner.unless and runner.unless in args):
        return None
    if runner.always:
        return Finding(program=name, why=runner.why, position=_first(args))
    if runner.judge is not None:
        return runner.judge(args)
    for position, word in enumerate(args):
        following = args[position + 1] if position + 1 < len(args) else ""
        if any(_is_flag(runner, flag, word, following) for flag in runner.flags):
            return Finding(program=name, why=runner.why, position=position)
    if runner.subcommands is not None:
        position = next((index for index, word in enumerate(args) if not word.startswith("-")), None)
        if position is not None and args[position] not in runner.subcommands:
            return Finding(program=name, why=runner.why, position=position)
    if runner.text:
        return _text_finding(runner, name, args, stdin)
    return None


def _text_finding(runner: Runner, name: str, args: tuple[str, ...], stdin: bytes) -> Finding | None:
    pattern = re.compile(runner.text, re.IGNORECASE | re.MULTILINE)
    for position, word in enumerate(args):
        if pattern.search(word):
            return Finding(program=name, why=runner.why, position=position)
    if runner.reads_input and pattern.search(stdin.decode("utf-8", "surrogateescape")):
        return Finding(program=name, why=f"{runner.why} (its input asks for it)")
    return None


def _is_flag(runner: Runner, flag: str, word: str, following: str) -> bool:
    option, _, wanted = flag.partition("=")
    return any(
        re.match(wanted, value.strip(), re.IGNORECASE) is not None
        for value in _values(runner, option, word, following)
    )


def _values(runner: Runner, option: str, word: str, following: str) -> Iterator[str]:
    """The values that an option would have if this word is it; nothing if it is not."""
    name, equals, value = word.partition("=")
    if option.startswith("--"):
        abbreviated = len(name) > len("--") and option.startswith(name) and name not in runner.harmless
        if abbreviated and word.startswith("--"):
            yield value if equals else following
        return
    if len(option) > len("-x"):
        if name in (option, "-" + option):
            yield value if equals else following
        return
    if not word.startswith("-") or word.startswith("--"):
        return
    for index, letter in enumerate(word[1:], start=1):
        if letter == option[1]:
            yield word[index + 1 :].removeprefix("=") or following
            return
        if not runner.clusters or letter in runner.valued:
            return


def positionals(args: tuple[str, ...], valued: str = "") -> Iterator[int]:
    """Where the words are that are neither options nor, for the given short options, their values."""
    skip = False
    for position, word in enumerate(args):
        if skip:
            skip = False
        elif word.startswith("-") and word != "-":
            skip = len(word) == len("-x") and word[1] in valued
        else:
            yield position
