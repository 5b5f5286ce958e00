"""A click group that knows its commands from a table and imports one only when it is called."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from palyra.errors import Unavailable

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Below this two short words share letters rather than a meaning.
LIKENESS = 0.7


class CommandMissing(Unavailable):
    code = "cli.command_missing"
    hint = "this installation is incomplete: install Palyra again"


class LazyCommand(NamedTuple):
    """``target`` is ``module:attribute``; ``help`` is shown without importing it."""

    target: str
    help: str


class LazyGroup(click.Group):
    def __init__(self, *args: Any, table: dict[str, LazyCommand], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.table.get(cmd_name)
        return None if entry is None else load(cmd_name, entry)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.table and not name.startswith("-") and not ctx.resilient_parsing:
            import difflib

            near = difflib.get_close_matches(name, self.table, n=2, cutoff=LIKENESS)
            suggestion = f" Did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"No such command {name!r}.{suggestion}", ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.table.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        commands = [
            CompletionItem(name, help=entry.help) for name, entry in self.table.items() if name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)


def load(name: str, entry: LazyCommand) -> click.Command:
    module_name, _, attribute = entry.target.partition(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise
        raise CommandMissing(f"the command {name!r} is not installed here") from error
    command = getattr(module, attribute)
    if not isinstance(command, click.Command):
        raise TypeError(f"{entry.target} is not a command")
    return command
