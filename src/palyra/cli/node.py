"""``palyra node``: devices of a daemon, and being one. Each verb is imported when it is called."""

from typing import Final

import click

from palyra.cli.lazy import LazyCommand, LazyGroup

VERBS: Final = {
    "run": LazyCommand("palyra.cli.node_host:run", "Be a device of a daemon, in the foreground."),
    "status": LazyCommand("palyra.cli.node_host:status", "Show this device's own pairing."),
    "leave": LazyCommand("palyra.cli.node_host:leave", "End this device's own pairing."),
}


@click.group(cls=LazyGroup, table=VERBS)
def node() -> None:
    """See and use devices, and be one.

    run, status and leave are for the device itself; the others ask the daemon.
    """
