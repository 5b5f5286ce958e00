"""``palyra node``: devices that do things for agents. Each verb is imported when it is called."""

from typing import Final

import click

from palyra.cli.lazy import LazyCommand, LazyGroup

VERBS: Final = {
    "list": LazyCommand("palyra.cli.node_admin:list_nodes", "List the paired devices."),
    "show": LazyCommand("palyra.cli.node_admin:show", "Show a device, what it offers and its newest requests."),
    "invoke": LazyCommand("palyra.cli.node_admin:invoke", "Have a device do something it offers."),
    "withhold": LazyCommand("palyra.cli.node_admin:withhold", "Take a capability of a device away."),
    "allow": LazyCommand("palyra.cli.node_admin:allow", "Give a withheld capability back."),
    "revoke": LazyCommand("palyra.cli.node_admin:revoke", "End a device's access at once."),
    "run": LazyCommand("palyra.cli.node_host:run", "Be a device of a daemon, in the foreground."),
    "status": LazyCommand("palyra.cli.node_host:status", "Show this device's own pairing."),
    "leave": LazyCommand("palyra.cli.node_host:leave", "End this device's own pairing."),
}


@click.group(cls=LazyGroup, table=VERBS)
def node() -> None:
    """Use, limit and revoke paired devices; or be one.

    `palyra pair` lets a device join. run, status and leave are for the device itself.
    """
