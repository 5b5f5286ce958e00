"""``palyra node run``, ``status`` and ``leave``: what is done on a device itself."""

import asyncio
from typing import Any

import click

from palyra.cli.invocation import Invocation, json_option, pass_invocation
from palyra.cli.terminal import labelled, shown
from palyra.clock import rfc3339
from palyra.errors import RemoteError

MAX_CODE_BYTES = 4096


@click.command("run")
@click.option("--server", "servers", multiple=True, metavar="HOST:PORT", help="Where to pair; repeatable.")
@click.option(
    "--code", metavar="CODE", help="The pairing code, as `palyra pair code` printed it; - reads it from stdin."
)
@click.option("--name", metavar="NAME", help="What this device calls itself; default: the setting node.name.")
@json_option
@pass_invocation
def run(invocation: Invocation, servers: tuple[str, ...], code: str | None, name: str | None) -> None:
    """Be a device of a daemon: pair if need be, then do what it asks, in the foreground.

    The first time a code is needed. The device shows six digits, which whoever approves it compares. Afterwards it
    reconnects and renews its certificate by itself. Ctrl-C stops it; the pairing stays.
    """
    from palyra.cli.node_person import TerminalPerson
    from palyra.daemons.node_host import NodeHost
    from palyra.nodes.pairing_code import ServerAddress, parse_code

    parsed = None if code is None else parse_code(_code(code))
    addresses = tuple(ServerAddress.parse(each) for each in servers)

    async def serve() -> Any:
        host = NodeHost(invocation.settings, invocation.state_dir, TerminalPerson(invocation.output), name=name or "")
        return await host.run(parsed, addresses)

    end = asyncio.run(serve())
    if end.code:
        from palyra.errors import PalyraError

        known = PalyraError.registry[end.code]
        raise RemoteError(end.message, remote_code=end.code, hint=known.hint, exit_code=known.exit_code)
    invocation.output.data({"ended": end.message}, lambda data: data["ended"])


@click.command("status")
@json_option
@pass_invocation
def status(invocation: Invocation) -> None:
    """Show this device's own pairing and whether its host runs."""
    from palyra.daemons.node_host import status_of

    invocation.output.data(status_of(invocation.state_dir), _render)


@click.command("leave")
@click.option("--forget", is_flag=True, help="Only forget it here: for a daemon that is gone for good.")
@json_option
@pass_invocation
def leave(invocation: Invocation, forget: bool) -> None:
    """End this device's pairing, at the daemon and here.

    Its certificates are revoked and its key is deleted. A host that runs ends by itself.
    """
    from palyra.daemons.node_host import leave as leave_daemon

    left = asyncio.run(leave_daemon(invocation.state_dir, forget_only=forget))
    invocation.output.data(left, lambda _: "this device is paired no more")


def _code(word: str) -> str:
    """On a command line every process of the machine can read it: standard input is the better way."""
    if word != "-":
        return word
    from palyra.cli.sources import read_stdin

    return read_stdin(MAX_CODE_BYTES).decode("utf-8", "replace")


def _render(data: dict[str, Any]) -> str:
    if "name" not in data:
        return "this device is not paired"
    ends = data.get("certificate_ends_ms")
    return labelled(
        (
            ("device", shown(data.get("device_id", ""))),
            ("name", shown(data["name"])),
            ("state", shown(str(data["state"]))),
            ("since", rfc3339(data["since_ms"]) if data.get("since_ms") else ""),
            ("servers", shown(", ".join(data["servers"]))),
            ("certificate", f"generation {data['generation']}, ends {rfc3339(ends)}" if ends else ""),
            ("note", shown("; ".join(data["told"]))),
        )
    )
