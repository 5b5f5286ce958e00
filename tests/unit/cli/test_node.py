import click

from palyra.cli.command_table import NODE_VERBS, node


def test_every_verb_has_its_command() -> None:
    context = click.Context(node)
    for name in NODE_VERBS:
        command = node.get_command(context, name)
        assert command is not None and command.name == name and command.help
    assert set(NODE_VERBS) == {"list", "show", "invoke", "withhold", "allow", "revoke", "run", "status", "leave"}
