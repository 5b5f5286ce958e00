"""One program that runs others, as data, and what its entry finds in a command line.

A use that runs nothing (``git status``, ``tar -xzf a.tgz``, ``find . -name x``) is no finding. Where the reading of an
argument is in doubt, the reading that runs a program counts; nothing stops at ``--``, because ``--`` may itself be the
value of an option.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

ASKS_FOR_HELP: Final = (("--version",), ("--help",), ("-V",), ("-version",))


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


def runner_finding(runner: Runner, name: str, args: tuple[str, ...], stdin: bytes | None) -> Finding | None:
    if args in ASKS_FOR_HELP or (runner.unless and runner.unless in args):
        return None
    if runner.always:
        return Finding(program=name, why=runner.why, position=0 if args else None)
    if runner.judge is not None and (found := runner.judge(args)):
        return found
    for position, word in enumerate(args):
        following = args[position + 1] if position + 1 < len(args) else ""
        if any(_is_flag(runner, flag, word, following) for flag in runner.flags):
            return Finding(program=name, why=runner.why, position=position)
    if runner.subcommands is not None:
        first = next((index for index, word in enumerate(args) if not word.startswith("-")), None)
        if first is not None and args[first] not in runner.subcommands:
            return Finding(program=name, why=runner.why, position=first)
    if runner.text:
        return _text_finding(runner, name, args, stdin)
    return None


def _text_finding(runner: Runner, name: str, args: tuple[str, ...], stdin: bytes | None) -> Finding | None:
    pattern = re.compile(runner.text, re.IGNORECASE | re.MULTILINE)
    for position, word in enumerate(args):
        if pattern.search(word):
            return Finding(program=name, why=runner.why, position=position)
    if runner.reads_input and stdin is None:
        return Finding(program=name, why=f"{runner.why} (its input is not known before it runs)")
    if runner.reads_input and stdin is not None and pattern.search(stdin.decode("utf-8", "surrogateescape")):
        return Finding(program=name, why=f"{runner.why} (its input asks for it)")
    return None


def _is_flag(runner: Runner, flag: str, word: str, following: str) -> bool:
    option, _, wanted = flag.partition("=")
    return any(
        re.match(wanted, value.strip(), re.IGNORECASE) is not None for value in _values(runner, option, word, following)
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
