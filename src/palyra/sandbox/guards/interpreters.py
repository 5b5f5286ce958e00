"""Programs that run any text they get, and every name of theirs.

This guard does not confine a program: the sandbox does. It keeps an agent's calls legible, one program and its
arguments, so that policy and people can judge them.
"""

import re
from typing import Final

from palyra.sandbox.domain.process_run import InterpreterDenied, ProcessCommand, excerpt
from palyra.sandbox.guards.exec_rule_table import EXEC_RULES
from palyra.sandbox.guards.exec_rules import ASKS_FOR_HELP, ExecRule, Finding, apply_rule
from palyra.sandbox.guards.executables import SYSTEM_ROOTS, ResolvedExecutable, base_name, is_beneath

_SHELLS: Final = """
    sh bash dash ash hush zsh fish ksh mksh lksh pdksh oksh loksh csh tcsh rc es yash posh elvish nu nushell xonsh osh
    oil ysh scsh sash mrsh gash rbash rksh rzsh git-shell pwsh powershell cmd
"""
_LANGUAGES: Final = """
    python pypy ipython jython micropython circuitpython graalpy pythonw py pdb pydoc bpython ptpython
    node nodejs deno bun js qjs quickjs d8 rhino jjs gjs njs duk mujs iojs electron tsx ts-node hermes mongosh
    mongo ruby irb erb jruby mruby mirb truffleruby perl perl6 raku rakudo moar parrot prename perldoc suidperl
    php php-cgi php-fpm phpdbg hhvm phar lua luajit luatex texlua luahbtex luau moon resty tarantool
    awk gawk mawk nawk bwk original-awk goawk frawk pgawk igawk tclsh wish jimsh expect expectk itclsh tclkit
    osascript automator wscript cscript mshta r rscript littler julia octave octave-cli scilab matlab gnuplot maxima
    guile racket mzscheme gracket scheme mit-scheme chez petite chibi-scheme csi gsi gosh bigloo kawa sbcl clisp ecl
    ccl abcl gcl newlisp picolisp clojure clj bb hy
    java jshell scala kotlin groovy groovysh dotnet csharp fsi fsharpi mono erl escript elixir iex gleam
    ghci runghc runhaskell ghc hugs ocaml ocamlrun utop sml poly mosml
    sage swipl prolog gprolog yap gforth pforth factor rexx regina oorexx rebol gst pike slsh
    m4 gm4 dc swift dart tcc cling wine wine64 wasmtime wasmer wasm3 iwasm wasmedge
"""
INTERPRETERS: Final = frozenset((_SHELLS + _LANGUAGES).split())

# Scripts of the distribution that do one fixed thing with files, which people use like programs. Any other script is
# as good as its interpreter: its author chooses what runs.
_FIXED_SCRIPTS: Final = """
    egrep fgrep gunzip uncompress zcat zcmp zdiff zegrep zfgrep zgrep bzcmp bzdiff bzgrep xzcmp xzdiff xzgrep
    which which.debianutils
"""
FIXED_SCRIPTS: Final = frozenset(_FIXED_SCRIPTS.split())

_VERSION: Final = re.compile(r"[-._]?v?\d.*$")
# Debian's and others' ways to tell builds of one program apart.
_BUILD: Final = re.compile(
    r"([-._+](static|dbg|debug|nox|minimal|tiny|small|full|basic|default|nopie|embed|jit|cli|any|system|portable|bin|pie))+$"
)
_EXTENSION: Final = re.compile(r"\.(exe|com|bat|cmd|bin|real|distrib|orig|wrapped|old)$")
_LOADER: Final = re.compile(r"ld(-linux.*|-musl-.*|64)?(-[\d.]+)?\.so(\.\d+)*|ld-[\d.]+\.so|ld\.so|rtld|dyld")


def normalize_program(name: str) -> str:
    """Strip case, a login shell's dash and a meaningless extension from a program's name."""
    plain = name.strip().lstrip("-").casefold().removeprefix(".")
    while _EXTENSION.search(plain):
        plain = _EXTENSION.sub("", plain)
    return plain.removesuffix("-wrapped")


def find_interpreter(name: str) -> str | None:
    """Name the interpreter behind a program's name: ``python`` for ``python3.11-dbg`` and for ``Python.EXE``."""
    plain = normalize_program(name)
    # perl6 is a name of its own; python3.11-dbg loses its version, bash-static and vim.tiny their build.
    for guess in (plain, _BUILD.sub("", plain), _VERSION.sub("", plain), _BUILD.sub("", _VERSION.sub("", plain))):
        # R4.2 is R; r2 is another program.
        if guess in INTERPRETERS and (len(guess) > 1 or guess == plain or "." in plain):
            return guess
    return None


def is_dynamic_loader(name: str) -> bool:
    """Whether the name is that of the dynamic loader, which runs the program in its argument."""
    return _LOADER.fullmatch(normalize_program(name)) is not None


def is_fixed_script(found: ResolvedExecutable) -> bool:
    """Whether a ``#!`` file is one of the distribution's own that are as good as a program."""
    name = found.real.rpartition("/")[2]
    return name in FIXED_SCRIPTS and found.on_path and any(is_beneath(found.real, root) for root in SYSTEM_ROOTS)


_RUNNER_VERSION: Final = re.compile(r"[-.]?\d[\d.]*([-.](posix|win32|basic|tiny|nox|gtk3|small))?$")
_MULTI_CALL: Final = frozenset({"busybox", "toybox", "coreutils"})
# Programs of their own whose names begin so.
_NOT_OF_GIT: Final = frozenset({"git-lfs", "git-shell", "git-crypt", "git-annex", "git-absorb"})
_BY_NAME: Final[dict[str, ExecRule]] = {name: rule for rule in EXEC_RULES for name in rule.names}


def judge_names(
    names: tuple[str, ...],
    args: tuple[str, ...],
    stdin: bytes | None = b"",
    *,
    marks: frozenset[str] = frozenset(),
    invented: frozenset[str] = frozenset(),
) -> Finding | None:
    """Judge whether a program of these names would run another one with these arguments and this input.

    The first name is the one it is called by. ``marks`` are programs whose texts its content holds. ``invented`` are
    names that a user gave to a program of their own: ./task is not the task runner, though ./python3 is refused.
    """
    multi_call = next(filter(None, map(_multi_call, (*names, *marks))), None)
    if multi_call is not None:
        # Every applet is the same file, so only the name it is called by says which one this is.
        if found := _judge_multi_call(multi_call, names[0], args, stdin):
            return found
        names = ()
    if names and names[0].startswith("git-") and names[0] not in _NOT_OF_GIT:
        names, args = ("git", *names[1:]), (names[0].removeprefix("git-"), *args)
    for name in (*names, *sorted(marks - _MULTI_CALL)):
        if found := _judge_name(name, args, stdin, invented=name in invented):
            return found
    return None


def _judge_name(name: str, args: tuple[str, ...], stdin: bytes | None, *, invented: bool) -> Finding | None:
    if interpreter := find_interpreter(name):
        return Finding(program=interpreter, why=f"{interpreter} runs whatever text it is given")
    if is_dynamic_loader(name):
        if args in ASKS_FOR_HELP or args == ("--list-diagnostics",):
            return None
        return Finding(
            program=name, why="the dynamic loader runs the program it is given", position=0 if args else None
        )
    rule = None if invented else find_exec_rule(name)
    return None if rule is None else apply_rule(rule, name, args, stdin)


def find_exec_rule(name: str) -> ExecRule | None:
    """Find the rule for a name in any spelling: ``x86_64-linux-gnu-gcc-12``, ``vim.basic`` and ``GIT.exe`` too."""
    plain = normalize_program(name)
    for guess in (plain, _RUNNER_VERSION.sub("", plain), plain.partition(".")[0], _stem(name)):
        if guess in _BY_NAME:
            return _BY_NAME[guess]
    return None


def _stem(name: str) -> str:
    """Without a version and without the machine that a cross compiler is for."""
    return _RUNNER_VERSION.sub("", normalize_program(name)).rpartition("-")[2]


def _multi_call(name: str) -> str | None:
    """``busybox`` for busybox, busybox.static, busybox-static and busybox1.36: it looks at how its name begins."""
    plain = normalize_program(name)
    return next((binary for binary in _MULTI_CALL if re.fullmatch(rf"{binary}([-._\d].*)?", plain)), None)


def _judge_multi_call(binary: str, typed: str, args: tuple[str, ...], stdin: bytes | None) -> Finding | None:
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
    return judge_names((applet.rpartition("/")[2],), rest, stdin)


def refuse_interpreter(found: ResolvedExecutable, command: ProcessCommand) -> None:
    """Refuse an interpreter, a script, or a program that is asked to run another one.

    The file behind the command is judged by every name of it, so that a link, a copy or an applet is judged alike.
    """
    invented = frozenset(found.names) - found.twins if found.in_workspace else frozenset()
    finding = judge_names(found.names, command.args, command.known_input, marks=found.marks, invented=invented)
    runnable = found.native if found.shebang is None else is_fixed_script(found)
    if finding is None and runnable:
        return
    typed, real = excerpt(command.command), excerpt(found.real)
    if finding is not None:
        where = "command" if finding.position is None else f"args[{finding.position}]"
        disguised = "" if base_name(command.command) == base_name(found.real) else f" ({real})"
        word = "" if finding.position is None else f": {excerpt(command.args[finding.position])!r}"
        raise InterpreterDenied(
            f"{typed!r}{disguised} is refused: {excerpt(finding.why)}{word}",
            argument=where,
            program=excerpt(finding.program),
            path=real,
        )
    if found.shebang is not None:
        raise InterpreterDenied(
            f"{typed!r} is a script for {excerpt(found.shebang)!r}", argument="command", program="#!", path=real
        )
    # A shell would take it for a script, and a registered handler for whatever it handles.
    raise InterpreterDenied(
        f"{typed!r} is neither a program nor a script that names what runs it", argument="command", path=real
    )
