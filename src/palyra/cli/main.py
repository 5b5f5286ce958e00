"""The ``palyra`` program: global options, the table of commands, and what every ending looks like.

Only click and the standard library are imported here, and a command's module only when it is called, so that
``palyra --help`` answers at once.
"""

import errno
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from palyra.cli.command_table import LazyCommand, LazyGroup
from palyra.cli.invocation import Invocation, json_option, pass_invocation
from palyra.cli.terminal import Output
from palyra.errors import ExitCode, Failed, InternalError, InvalidInput, PalyraError, exit_code_of
from palyra.version import VERSION
from palyra.visible_text import escape

if TYPE_CHECKING:
    from pathlib import Path

    from click.shell_completion import ShellComplete

INSTALL: Final = {
    "bash": "palyra completion bash > ~/.local/share/bash-completion/completions/palyra",
    "zsh": "palyra completion zsh > a file named _palyra in a folder of your $fpath",
    "fish": "palyra completion fish > ~/.config/fish/completions/palyra.fish",
}


@click.command(epilog="Install: " + INSTALL["bash"])
@click.argument("shell", type=click.Choice(tuple(INSTALL)))
@pass_invocation
def completion(invocation: Invocation, shell: str) -> None:
    """Print the completion script of a shell."""
    script = script_for(shell)
    invocation.output.data({"shell": shell, "script": script, "install": INSTALL[shell]}, lambda _: script)


def script_for(shell: str) -> str:
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    completer: ShellComplete = kind(root, {}, "palyra", "_PALYRA_COMPLETE")
    # click's own source() starts bash to ask its version; the script is the same for every version we meet.
    return completer.source_template % completer.source_vars()


EXIT_INTERRUPTED: Final = 130
# Errors of the machine, such as missing permission or a full disk: no fault of the program.
_OF_THE_MACHINE: Final = frozenset(
    (
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT),
        *(errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
    )
)

COMMANDS: Final = {
    "up": LazyCommand("palyra.cli.commands.up:up", "Start everything embedded, in the foreground."),
    "tour": LazyCommand("palyra.cli.commands.tour:tour", "Walk through what Palyra does, with real calls."),
    "doctor": LazyCommand("palyra.cli.commands.doctor:doctor", "Show what this machine can enforce."),
    "run": LazyCommand("palyra.cli.commands.run:run", "Run one command in the sandbox, without a daemon."),
    "call": LazyCommand("palyra.cli.commands.call:call", "Make one tool call."),
    "tools": LazyCommand("palyra.cli.commands.call:tools", "List and describe tools."),
    "approvals": LazyCommand("palyra.cli.commands.approvals:approvals", "See and decide what waits for a person."),
    "policy": LazyCommand("palyra.cli.commands.policy:policy", "Check, explain, test and replay policies."),
    "journal": LazyCommand("palyra.cli.commands.record:journal", "Read, verify and export the record."),
    "egress": LazyCommand("palyra.cli.commands.egress:egress", "Ask where tools may go on the network."),
    "attest": LazyCommand("palyra.cli.commands.record:attest", "Verify the signed statement of a call."),
    "vault": LazyCommand("palyra.cli.commands.credentials:vault", "Keep secrets that agents can use and never see."),
    "skill": LazyCommand("palyra.cli.command_table:skill", "Install, review and approve signed WebAssembly tools."),
    "pair": LazyCommand("palyra.cli.commands.pair:pair", "Let a new device join."),
    "node": LazyCommand("palyra.cli.command_table:node", "See and use devices, and be one."),
    "browser": LazyCommand("palyra.cli.command_table:browser", "Use a browser behind fences, look after its sessions."),
    "worker": LazyCommand("palyra.cli.commands.worker:worker", "See and direct the workers that calls run on."),
    "identity": LazyCommand("palyra.cli.commands.pair:identity", "See devices' certificates, replace their authority."),
    "token": LazyCommand("palyra.cli.commands.credentials:token", "Manage API tokens, each bound to a principal."),
    "mcp": LazyCommand("palyra.cli.commands.mcp:mcp", "Serve tools to an agent over stdin and stdout (MCP)."),
    "bench": LazyCommand("palyra.cli.commands.bench:bench", "Measure how fast this machine is with Palyra."),
    "state": LazyCommand("palyra.cli.commands.state:state", "Back up and restore what Palyra keeps."),
    "config": LazyCommand("palyra.cli.commands.config:config", "Show settings and where they came from."),
    "completion": LazyCommand("palyra.cli.main:completion", "Print a shell's completion script."),
}


class FileUnusable(Failed):
    code = "cli.file_unusable"
    hint = "this user may not use it, or there is no room: choose another place, or change that"


class UsageMistake(InvalidInput):
    code = "cli.usage"
    hint = "add --help to see what the command accepts"


class Interrupted(Failed):
    code = "cli.interrupted"
    hint = "what was already recorded stays recorded"


def _as_path(_: click.Context, _parameter: click.Parameter, value: str | None) -> "Path | None":
    if value is None:
        return None
    from pathlib import Path

    return Path(value)


def _print_version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    invocation = ctx.ensure_object(Invocation)
    invocation.output.json |= asks_for_json(invocation.arguments)
    invocation.output.data({"version": VERSION}, lambda data: f"palyra {data['version']}")
    ctx.exit()


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", metavar="FILE", type=click.Path(), callback=_as_path, help="Read settings from FILE.")
@click.option("--state-dir", metavar="DIR", type=click.Path(), callback=_as_path, help="Keep state in DIR.")
@click.option("--no-color", is_flag=True, help="Print without colour, as with NO_COLOR.")
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
@json_option
@click.pass_context
def root(ctx: click.Context, config: "Path | None", state_dir: "Path | None", no_color: bool) -> None:
    """Run the tools of AI agents safely: authorised, contained, recorded.

    Exit codes: 0 done, 1 failed, 2 usage, 3 denied, 4 needs approval, 5 limit or timeout, 6 not available,
    7 not proven.
    """
    invocation = ctx.ensure_object(Invocation)
    invocation.config_option = config
    invocation.state_dir_option = state_dir
    invocation.output.color = invocation.output.color and not no_color


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether ``--json`` was typed: for a command line that could not be parsed far enough to know."""
    words = list(arguments)
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def run(arguments: Sequence[str]) -> int:
    return run_as_program(root, "palyra", arguments)


def run_as_program(command: click.Command, program: str, arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. Every ending is printed here and nowhere else."""
    invocation = Invocation(arguments)
    output = invocation.output
    try:
        try:
            result = command.main(list(arguments), prog_name=program, standalone_mode=False, obj=invocation)
            status = result if isinstance(result, int) else ExitCode.DONE
        except BrokenPipeError:
            raise
        except SystemExit as ended:
            # click ends this way itself after a completion request, and when the reader of stdout went away.
            status = ended.code if isinstance(ended.code, int) else ExitCode.DONE
        except Exception as error:
            output.json |= asks_for_json(arguments)
            status = _report(error, program, output)
        except KeyboardInterrupt:
            status = _report(click.Abort(), program, output)
        output.flush()
    except BrokenPipeError:
        return _leave_quietly()
    return int(status)


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def _report(error: Exception, program: str, output: Output) -> int:
    match error:
        case PalyraError():
            output.error(error)
            return exit_code_of(error)
        case click.ClickException():
            return _report_usage(error, program, output)
        case click.Abort():
            output.error(Interrupted("interrupted"))
            return EXIT_INTERRUPTED
        case OSError() if error.errno in _OF_THE_MACHINE and isinstance(error.filename, str | bytes):
            unusable = FileUnusable(f"cannot use {escape(os.fsdecode(error.filename))}: {error.strerror}")
            output.error(unusable)
            return exit_code_of(unusable)
        case _:
            return _report_bug(error, output)


def _report_usage(error: click.ClickException, program: str, output: Output) -> ExitCode:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else program
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        if not output.json:
            output.note(error.format_message())
            return ExitCode.USAGE
        message = f"{command} needs a command or an argument"
    else:
        message = error.format_message()
    output.error(UsageMistake(message, hint=f"see `{command} --help`"))
    return ExitCode.USAGE


def _report_bug(error: Exception, output: Output) -> ExitCode:
    if os.environ.get("PALYRA_DEBUG") == "1":
        import traceback

        output.note("".join(traceback.format_exception(error)))
    output.error(
        InternalError(
            f"Palyra met a fault of its own ({type(error).__name__})",
            hint="run it again with PALYRA_DEBUG=1 to see where, and report that",
        )
    )
    return ExitCode.FAILED


def _leave_quietly() -> int:
    """Write the rest to nowhere: the reader is gone, and the interpreter's own flush must not complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return ExitCode.FAILED


if __name__ == "__main__":
    main()
