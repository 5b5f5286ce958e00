import msgspec
import pytest

from palyra.sandbox.domain.process_run import InterpreterDenied, ProcessCommand
from palyra.sandbox.guards.executables import Kind, ResolvedExecutable
from palyra.sandbox.guards.interpreters import (
    INTERPRETERS,
    find_interpreter,
    is_dynamic_loader,
    is_fixed_script,
    refuse_interpreter,
)

SPELLINGS = {
    "sh": "sh sh.distrib SH -sh sh.exe",
    "bash": "bash bash5 bash-static bash5.2 Bash .bash-wrapped",
    "dash": "dash",
    "zsh": "zsh zsh5 zsh-5.9 zsh-static",
    "fish": "fish fish3",
    "ksh": "ksh ksh93",
    "csh": "csh",
    "tcsh": "tcsh",
    "python": "python python3 python3.11 python3.11-dbg python2.7 python-dbg PYTHON.EXE python3.13t python3.12.real",
    "pypy": "pypy pypy3 pypy3.10",
    "node": "node node18 node-18 node-v20.1.0",
    "nodejs": "nodejs",
    "deno": "deno",
    "bun": "bun",
    "ruby": "ruby ruby3.1 ruby2.7-dbg",
    "perl": "perl perl5.36.0 perl5.36-x86_64-linux-gnu perl-static",
    "php": "php php8.2 php.default",
    "php-cgi": "php-cgi php-cgi8.2",
    "lua": "lua lua5.4 lua50",
    "luajit": "luajit luajit-2.1.0-beta3",
    "awk": "awk",
    "gawk": "gawk gawk-5.2.1",
    "mawk": "mawk",
    "nawk": "nawk",
    "original-awk": "original-awk",
    "tclsh": "tclsh tclsh8.6",
    "wish": "wish wish8.6",
    "expect": "expect expect5.45",
    "pwsh": "pwsh pwsh.exe pwsh-7.4",
    "cmd": "cmd cmd.exe CMD.EXE",
    "osascript": "osascript",
    "rscript": "Rscript",
    "r": "R R4.2",
    "guile": "guile guile-3.0 guile3.0",
    "m4": "m4",
    "java": "java java17",
}


@pytest.mark.parametrize(
    ("stem", "spelled"), [(stem, name) for stem, names in SPELLINGS.items() for name in names.split()]
)
def test_every_spelling_is_found(stem: str, spelled: str) -> None:
    assert find_interpreter(spelled) == stem


@pytest.mark.parametrize(
    "name",
    [
        "ls",
        "git",
        "shasum",
        "sha256sum",
        "shred",
        "shuf",
        "show",
        "shar",
        "bashful",
        "nodes",
        "perltidy",
        "rubocop",
        "phpunit",
        "luacheck",
        "expectation",
        "dashboard",
        "cat",
        "ssh",
        "fishing",
        "zshrc",
        "csharpier",
        "pyright",
        "javac",
        "gccgo",
        "cc",
        "make",
        "r2",
        "rm",
        "rmdir",
        "rev",
        "time",
        "awkward",
    ],
)
def test_other_names_are_left_alone(name: str) -> None:
    assert find_interpreter(name) is None


def test_the_list_is_in_plain_spelling() -> None:
    assert all(find_interpreter(name) for name in INTERPRETERS)


@pytest.mark.parametrize(
    "name",
    [
        "ld-linux-x86-64.so.2",
        "ld-linux.so.2",
        "ld-linux-aarch64.so.1",
        "ld-2.36.so",
        "ld.so",
        "ld-musl-x86_64.so.1",
        "ld64.so.2",
    ],
)
def test_dynamic_loaders(name: str) -> None:
    assert is_dynamic_loader(name)


def test_linkers_are_no_loaders() -> None:
    assert not any(map(is_dynamic_loader, ("ld", "ld.bfd", "ld.gold", "ldd", "ldconfig", "libc.so.6")))


def test_only_the_systems_own_fixed_scripts_pass() -> None:
    script = ResolvedExecutable(
        typed="egrep", found="/usr/bin/egrep", real="/usr/bin/egrep", kind=Kind.FILE, on_path=True, shebang="/bin/sh"
    )
    planted = ResolvedExecutable(
        typed="./egrep", found="/ws/egrep", real="/ws/egrep", kind=Kind.FILE, in_workspace=True, shebang="/bin/sh"
    )
    other = ResolvedExecutable(typed="ldd", found="/usr/bin/ldd", real="/usr/bin/ldd", kind=Kind.FILE, on_path=True)
    assert is_fixed_script(script) and not is_fixed_script(planted) and not is_fixed_script(other)


FIND = ResolvedExecutable(typed="find", found="/usr/bin/find", real="/usr/bin/find", kind=Kind.FILE, on_path=True)


def refusal(found: ResolvedExecutable, *args: str) -> InterpreterDenied:
    with pytest.raises(InterpreterDenied) as caught:
        refuse_interpreter(found, ProcessCommand(command=found.typed, args=args))
    return caught.value


def test_the_argument_that_runs_something_is_named() -> None:
    error = refusal(FIND, ".", "-exec", "sh", ";")
    assert error.details["argument"] == "args[1]" and error.details["program"] == "find" and "'-exec'" in error.message


def test_a_disguise_is_named() -> None:
    tool = ResolvedExecutable(
        typed="./tool", found="/ws/tool", passed=("/ws/tool",), real="/usr/bin/python3.11", kind=Kind.FILE
    )
    error = refusal(tool)
    assert error.details["argument"] == "command" and "/usr/bin/python3.11" in error.message


def test_scripts_and_unknown_formats() -> None:
    script = msgspec.structs.replace(FIND, typed="./s", found="/ws/s", real="/ws/s", shebang="/bin/cat", native=False)
    assert "/bin/cat" in refusal(script).message
    assert "neither" in refusal(msgspec.structs.replace(script, shebang=None)).message


def test_an_ordinary_use_passes() -> None:
    refuse_interpreter(FIND, ProcessCommand(command="find", args=(".", "-name", "x")))


def test_a_program_that_takes_commands_from_an_unknown_input_is_refused() -> None:
    sqlite = msgspec.structs.replace(FIND, typed="sqlite3", found="/usr/bin/sqlite3", real="/usr/bin/sqlite3")
    known = ProcessCommand(command="sqlite3", args=("x.db",), stdin=b"select 1;")
    refuse_interpreter(sqlite, known)
    with pytest.raises(InterpreterDenied, match="not known before it runs"):
        refuse_interpreter(sqlite, msgspec.structs.replace(known, live_input=3))
    refuse_interpreter(FIND, ProcessCommand(command="find", args=(".",), live_input=3))
