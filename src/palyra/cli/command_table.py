"""A click group that knows its commands from a table and imports one only when it is called."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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


BROWSER_VERBS: Final = {
    "open": LazyCommand("palyra.cli.commands.browser:open_session", "Open a session with the hosts it may reach."),
    "list": LazyCommand("palyra.cli.commands.browser_admin:list_sessions", "List the sessions there are."),
    "show": LazyCommand(
        "palyra.cli.commands.browser_admin:show_session", "Show a session and the fences around its browser."
    ),
    "navigate": LazyCommand("palyra.cli.commands.browser:navigate", "Go to an address."),
    "snapshot": LazyCommand("palyra.cli.commands.browser:snapshot", "Print a page as a tree with refs, or as text."),
    "act": LazyCommand("palyra.cli.commands.browser:act", "Click, type, choose, wait: one action or many."),
    "screenshot": LazyCommand("palyra.cli.commands.browser:screenshot", "Save a picture of a page."),
    "downloads": LazyCommand("palyra.cli.commands.browser_admin:downloads", "See, save, release and delete downloads."),
    "profiles": LazyCommand("palyra.cli.commands.browser_admin:profiles", "See, make, empty and delete profiles."),
    "takeover": LazyCommand(
        "palyra.cli.commands.browser_admin:takeover", "Take a session over: its agent has to wait."
    ),
    "handback": LazyCommand("palyra.cli.commands.browser_admin:handback", "Hand a session back to its agent."),
    "close": LazyCommand("palyra.cli.commands.browser_admin:close", "End a session."),
}


@click.group(cls=LazyGroup, table=BROWSER_VERBS)
def browser() -> None:
    """Use a browser that reaches named hosts only, and look after everybody's sessions.

    Every use is a tool call: the same decisions, approvals and record as for an agent. `palyra up` starts the browser.
    """


NODE_VERBS: Final = {
    "list": LazyCommand("palyra.cli.commands.node:list_nodes", "List the paired devices."),
    "show": LazyCommand("palyra.cli.commands.node:show", "Show a device, what it offers and its newest requests."),
    "invoke": LazyCommand("palyra.cli.commands.node:invoke", "Have a device do something it offers."),
    "withhold": LazyCommand("palyra.cli.commands.node:withhold", "Take a capability of a device away."),
    "allow": LazyCommand("palyra.cli.commands.node:allow", "Give a withheld capability back."),
    "revoke": LazyCommand("palyra.cli.commands.node:revoke", "End a device's access at once."),
    "run": LazyCommand("palyra.cli.commands.node:run", "Be a device of a daemon, in the foreground."),
    "status": LazyCommand("palyra.cli.commands.node:status", "Show this device's own pairing."),
    "leave": LazyCommand("palyra.cli.commands.node:leave", "End this device's own pairing."),
}


@click.group(cls=LazyGroup, table=NODE_VERBS)
def node() -> None:
    """Use, limit and revoke paired devices; or be one.

    `palyra pair` lets a device join. run, status and leave are for the device itself.
    """


SKILL_VERBS: Final = {
    "new": LazyCommand("palyra.cli.commands.skills.author:new", "Begin a skill from a template."),
    "build": LazyCommand("palyra.cli.commands.skills.author:build", "Compile and pack a skill's project."),
    "run": LazyCommand("palyra.cli.commands.skills.trial:run", "Run a tool of a project on this machine."),
    "test": LazyCommand("palyra.cli.commands.skills.trial:test", "Run a project's examples."),
    "keygen": LazyCommand("palyra.cli.commands.skills.author:keygen", "Make a publisher's key."),
    "sign": LazyCommand("palyra.cli.commands.skills.author:sign", "Sign the archive of the last build."),
    "builder": LazyCommand(
        "palyra.cli.commands.skills.builder:builder", "Make skills from descriptions and recorded runs."
    ),
    "verify": LazyCommand("palyra.cli.commands.skills.review:verify", "Verify an archive's signature and statements."),
    "audit": LazyCommand(
        "palyra.cli.commands.skills.review:audit", "Show what an audit finds in an archive or a skill."
    ),
    "install": LazyCommand("palyra.cli.commands.skills.lifecycle:install", "Put an archive into quarantine."),
    "list": LazyCommand("palyra.cli.commands.skills.review:list_skills", "List skills and their versions."),
    "show": LazyCommand(
        "palyra.cli.commands.skills.review:show", "Show a skill with all a review needs, and its history."
    ),
    "approve": LazyCommand(
        "palyra.cli.commands.skills.lifecycle:approve", "Put exactly one version of a skill in use."
    ),
    "disable": LazyCommand("palyra.cli.commands.skills.lifecycle:disable", "Stop the version in use."),
    "enable": LazyCommand("palyra.cli.commands.skills.lifecycle:enable", "Let the disabled version run again."),
    "quarantine": LazyCommand(
        "palyra.cli.commands.skills.lifecycle:quarantine", "Take a version out of use until it is approved."
    ),
    "rollback": LazyCommand("palyra.cli.commands.skills.lifecycle:rollback", "Go back to a version that was in use."),
    "remove": LazyCommand("palyra.cli.commands.skills.lifecycle:remove", "Remove a version or a whole skill."),
    "purge": LazyCommand("palyra.cli.commands.skills.lifecycle:purge", "Erase what a removed skill has stored."),
    "configure": LazyCommand("palyra.cli.commands.skills.lifecycle:configure", "Set a skill's configuration."),
    "trust": LazyCommand("palyra.cli.commands.skills.lifecycle:trust", "Say whose keys are trusted."),
}


@click.group(cls=LazyGroup, table=SKILL_VERBS)
def skill() -> None:
    """Install, review and approve signed WebAssembly tools.

    Installing is not enabling: a version runs after an operator has approved exactly its id, version and digest. An
    upgrade leaves the old version in use until then.
    """
