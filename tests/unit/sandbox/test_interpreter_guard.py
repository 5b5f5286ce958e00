import msgspec
import pytest

from palyra.sandbox.domain.process_run import InterpreterDenied, ProcessCommand
from palyra.sandbox.guards.executables import Kind, ResolvedExecutable
from palyra.sandbox.guards.interpreters import refuse_interpreter

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
