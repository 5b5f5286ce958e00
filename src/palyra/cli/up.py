"""``palyra up``: everything embedded, in the foreground, until Ctrl-C."""

import asyncio
from typing import TYPE_CHECKING

import click

from palyra.cli.invocation import Invocation, json_option, pass_invocation

if TYPE_CHECKING:
    from palyra.daemons.gateway import Gateway
    from palyra.secret import Secret


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="Listen on this port; 0 takes any free one.")
@click.option("--workspace", metavar="DIR", help="Folder the file tools work in.")
@json_option
@pass_invocation
def up(invocation: Invocation, port: int | None, workspace: str | None) -> None:
    """Start everything embedded, in the foreground.

    Prints the address and the operator's token, and stops in order on Ctrl-C or SIGTERM: running calls finish or are
    cancelled, and the journal is sealed.
    """
    from pathlib import Path

    if port is not None:
        invocation.overrides["daemon.port"] = port
    if workspace is not None:
        invocation.overrides["workspace.root"] = str(Path(workspace).absolute())
    run_daemon(invocation)


def run_daemon(invocation: Invocation) -> None:
    import uvloop

    from palyra.daemons.server import serve

    def announce(url: str, token: "Secret", gateway: "Gateway") -> None:
        started = {
            "url": url,
            "token": token.reveal(),
            "state_dir": str(invocation.state_path),
            "workspace": gateway.broker.config.workspace,
            "policy_dir": str(invocation.locations.policy_dir(invocation.settings)),
        }
        invocation.output.data(started, _greeting)
        invocation.output.flush()

    service = serve(
        invocation.located_settings,
        invocation.state_dir,
        invocation.locations.policy_dir(invocation.settings),
        announce,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(service)


def _greeting(started: dict[str, str]) -> str:
    return (
        f"Palyra is up.\n"
        f"  address    {started['url']}\n"
        f"  token      {started['token']}\n"
        f"  workspace  {started['workspace']}\n"
        f"  policies   {started['policy_dir']}\n"
        f"  state      {started['state_dir']}\n"
        f'In another terminal: palyra tour, or palyra call echo --input \'{{"text": "hi"}}\'. Ctrl-C stops.'
    )
