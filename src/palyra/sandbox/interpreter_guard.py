"""Refuses a command whose program is an interpreter, a script, or a program that is asked to run another one."""

from palyra.sandbox.command import ProcessCommand, excerpt
from palyra.sandbox.executables import ResolvedExecutable
from palyra.sandbox.interpreters import is_fixed_script
from palyra.sandbox.outcome import InterpreterDenied
from palyra.sandbox.path_walk import base_name
from palyra.sandbox.program_runners import finding_in


def refuse_interpreter(found: ResolvedExecutable, command: ProcessCommand) -> None:
    """Decides on the file behind the command, not on its spelling."""
    typed = excerpt(command.command)
    real = excerpt(found.real)
    invented = frozenset(found.names) - found.twins if found.in_workspace else frozenset()
    finding = finding_in(found.names, command.args, command.known_input, marks=found.marks, invented=invented)
    if finding is not None:
        where = "command" if finding.position is None else f"args[{finding.position}]"
        disguised = "" if base_name(command.command) == base_name(found.real) else f" ({real})"
        asked = "" if finding.position is None else f": {excerpt(command.args[finding.position])!r}"
        raise InterpreterDenied(
            f"{typed!r}{disguised} is refused: {excerpt(finding.why)}{asked}",
            argument=where,
            program=excerpt(finding.program),
            path=real,
        )
    if found.shebang is not None and not is_fixed_script(found):
        raise InterpreterDenied(
            f"{typed!r} is a script for {excerpt(found.shebang)!r}", argument="command", program="#!", path=real
        )
    if found.shebang is None and not found.native:
        # A shell would take it for a script, and a registered handler for whatever it handles.
        raise InterpreterDenied(
            f"{typed!r} is neither a program nor a script that says what runs it", argument="command", path=real
        )
