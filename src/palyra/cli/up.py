"""``palyra up``: everything embedded, in the foreground, until Ctrl-C."""

import asyncio
from typing import TYPE_CHECKING

import click

from palyra.cli.invocation import Invocation, json_option, pass_invocation

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from palyra.daemons.gateway import Gateway
    from palyra.secret import Secret


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="Listen on this port; 0 takes any free one.")
@click.option("--workspace", metavar="DIR", help="Folder the file tools work in.")
@click.option(
    "--workers", type=click.IntRange(0, 64), default=0, metavar="N", help="Start N workers on this machine as well."
)
@click.option("--as-service", is_flag=True, hidden=True, help="As palyrad: everything that is worth logging is logged.")
@json_option
@pass_invocation
def up(invocation: Invocation, port: int | None, workspace: str | None, workers: int, as_service: bool) -> None:
    """Start everything embedded, in the foreground.

    Prints the address and the operator's token, and stops in order on Ctrl-C or SIGTERM: running calls finish or are
    cancelled, and the journal is sealed. With --workers, calls can run there too: `palyra call --tier worker`.
    """
    from pathlib import Path

    if port is not None:
        invocation.overrides["daemon.port"] = port
    if workspace is not None:
        invocation.overrides["workspace.root"] = str(Path(workspace).absolute())
    run_daemon(invocation, workers, as_service=as_service)


def run_daemon(invocation: Invocation, workers: int = 0, *, as_service: bool = False) -> None:
    import uvloop

    from palyra.config.merge import OriginKind
    from palyra.daemons.server import nothing_beside, serve
    from palyra.telemetry.log_setup import set_up_log

    # A person at a terminal is told of trouble only, unless the settings say otherwise.
    chosen = as_service or invocation.loaded.origins["log.level"].kind is not OriginKind.DEFAULT
    log = set_up_log(invocation.settings.log, at_least="debug" if chosen else "warning")

    def announce(url: str, token: "Secret", gateway: "Gateway") -> None:
        log.redact_with(gateway.redactor.text)
        started = {
            "url": url,
            "token": token.reveal(),
            "state_dir": str(invocation.state_path),
            "workspace": gateway.broker.config.workspace,
            "policy_dir": str(invocation.locations.policy_dir(invocation.settings)),
        }
        invocation.output.data(started, _greeting)
        invocation.output.flush()

    def beside(gateway: "Gateway") -> "AbstractAsyncContextManager[None]":
        if not workers:
            return nothing_beside(gateway)
        from palyra.daemons.local_workers import LocalWorkers

        config = invocation.locations.existing_config_file()
        return LocalWorkers(workers, gateway, config=config, say=invocation.output.note).running()

    service = serve(
        invocation.located_settings,
        invocation.state_dir,
        invocation.locations.policy_dir(invocation.settings),
        announce,
        beside,
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
