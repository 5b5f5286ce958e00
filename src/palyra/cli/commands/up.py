"""``palyra up``: everything embedded, in the foreground, until Ctrl-C."""

import asyncio
import gc
import os
import shutil
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from palyra.cli.invocation import Invocation, pass_invocation
from palyra.cli.terminal import printable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from palyra.daemon.gateway_wiring import Gateway
    from palyra.secret import Secret


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="Listen on this port; 0 takes any free one.")
@click.option("--workspace", metavar="DIR", help="Folder that calls work in; it has to be there.")
@click.option(
    "--workers", type=click.IntRange(0, 64), default=0, metavar="N", help="Start N workers on this machine as well."
)
@click.option("--as-service", is_flag=True, hidden=True, help="As palyrad: everything that is worth logging is logged.")
@click.option("--no-browser", is_flag=True, help="Do not start the browser daemon: no browser tools.")
@click.option("--for-agents", is_flag=True, hidden=True, help="Stop after the last agent on stdio has left.")
@pass_invocation
def up(
    invocation: Invocation,
    port: int | None,
    workspace: str | None,
    workers: int,
    no_browser: bool,
    for_agents: bool = False,
    as_service: bool = False,
) -> None:
    """Start everything embedded, in the foreground.

    Prints the address and the operator's token, and stops in order on Ctrl-C or SIGTERM: running calls finish or are
    cancelled, and the journal is sealed. With --workers, calls can run there too: `palyra call --tier worker`.
    """
    from pathlib import Path

    if port is not None:
        invocation.overrides["daemon.port"] = port
    if workspace is not None:
        invocation.overrides["workspace.root"] = str(Path(workspace).expanduser().absolute())
    run_daemon(invocation, workers, browser=not no_browser, for_agents=for_agents, as_service=as_service)


def run_daemon(
    invocation: Invocation,
    workers: int = 0,
    *,
    browser: bool = True,
    for_agents: bool = False,
    as_service: bool = False,
) -> None:
    # As ``made_to_stay``: until the daemon listens.
    gc.disable()
    import uvloop

    from palyra.config.load import OriginKind
    from palyra.daemon.palyrad import serve
    from palyra.telemetry.log import set_up_log

    # A person at a terminal sees warnings and errors only, unless the settings say otherwise.
    chosen = as_service or invocation.loaded.origins["log.level"].kind is not OriginKind.DEFAULT
    log = set_up_log(invocation.settings.log, at_least="debug" if chosen else "warning")

    def announce(url: str, token: "Secret", gateway: "Gateway") -> None:
        log.redact_with(gateway.redactor.text)
        started: dict[str, Any] = {
            "url": url,
            "token": token.reveal(),
            "state_dir": str(invocation.state_path),
            "workspace": gateway.broker.config.workspaces.default,
            "policy_dir": str(invocation.locations.policy_dir(invocation.settings.policy.dir)),
        }
        if named := gateway.broker.config.workspaces.named:
            started["workspaces"] = {each.name: each.root for each in named}
        invocation.output.data(started, _greeting)
        invocation.output.flush()
        gc.freeze()
        gc.enable()

    def say(text: str) -> None:
        log.say(printable(text))

    @asynccontextmanager
    async def beside(gateway: "Gateway") -> "AsyncIterator[None]":
        config = invocation.locations.find_config_file()
        async with AsyncExitStack() as stack:
            # The first of them loads the protocol's library when it has its tools.
            mcp = gateway.mcp.leaving_with_agents() if for_agents else gateway.mcp.preparing()
            await stack.enter_async_context(mcp)
            if browser and invocation.settings.browser.enabled:
                from palyra.daemon.browserd_supervisor import LocalBrowser

                local = LocalBrowser(invocation.state_dir, config=config, say=say)
                await stack.enter_async_context(local.running())
            if workers:
                from palyra.daemon.local_workers import LocalWorkers

                await stack.enter_async_context(LocalWorkers(workers, gateway, config=config, say=say).running())
            yield

    service = serve(
        invocation.located_settings,
        invocation.state_dir,
        invocation.locations.policy_dir(invocation.settings.policy.dir),
        announce,
        beside,
        invocation.config_path,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(service)


def _greeting(started: dict[str, Any]) -> str:
    palyra = command_of(sys.argv[0])
    named = "".join(f"             {root} ({name})\n" for name, root in started.get("workspaces", {}).items())
    return (
        f"Palyra is up.\n"
        f"  console    {started['url']}/\n"
        f"  token      {started['token']}\n"
        f"  workspace  {started['workspace']}\n{named}"
        f"  policies   {started['policy_dir']}\n"
        f"  state      {started['state_dir']}\n"
        f"Open the console and log in with the token. In another terminal: {palyra} tour, or\n"
        f'{palyra} call echo --input \'{{"text": "hi"}}\'. Ctrl-C stops.'
    )


def command_of(program: str, path: str | None = None) -> str:
    """Return the words that call the command line.

    It is the program's name if the shell finds it, else the path it was called by, such as ``.venv/bin/palyra`` in a
    checkout.
    """
    name = os.path.basename(program)
    return program if name == "palyra" and shutil.which(name, path=path) is None else "palyra"


# ``palyrad``: the daemon as a service manager starts it. People use ``palyra up``, which is the same daemon.


def main() -> None:
    from palyra.cli.main import run

    # Global options come before the command, as everywhere: `palyrad --state-dir DIR` is `palyra --state-dir DIR up`.
    sys.exit(run([*sys.argv[1:], "up", "--as-service"]))


if __name__ == "__main__":
    main()
