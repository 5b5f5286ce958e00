import msgspec
import pytest

from palyra.sandbox.command import ProcessCommand
from palyra.sandbox.executables import ResolvedExecutable
from palyra.sandbox.interpreter_guard import refuse_interpreter
from palyra.sandbox.outcome import InterpreterDenied
from palyra.sandbox.path_walk import Kind

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
