"""The ``palyra-browserd`` program: Chromium sessions for the agents of the palyrad on this machine."""

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from palyra.cli.invocation import Invocation, pass_invocation


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", metavar="FILE", type=click.Path(path_type=Path), help="Read settings from FILE.")
@click.option("--state-dir", metavar="DIR", type=click.Path(path_type=Path), help="Keep state in DIR.")
@click.option("--until-input-ends", is_flag=True, help="End when standard input does, as with `palyra up`.")
@pass_invocation
def browserd(invocation: Invocation, config: Path | None, state_dir: Path | None, until_input_ends: bool) -> None:
    """Serve browser sessions to the palyrad that has the same state directory.

    `palyra up` starts it. It listens on a socket in the state directory and nowhere else; its health page on loopback
    tells counts only. Stops in order on Ctrl-C or SIGTERM: sessions are closed, and persistent profiles saved.
    """
    import uvloop

    from palyra.daemon.browserd import serve_browser
    from palyra.daemon.service_manager import ServiceManager, notify_alive
    from palyra.telemetry.log import set_up_log

    invocation.config_option = config
    invocation.state_dir_option = state_dir
    set_up_log(invocation.settings.log)

    def announce(manager: ServiceManager, started: dict[str, Any]) -> None:
        manager.ready("serving browser sessions")
        invocation.output.data(started, lambda data: f"The browser daemon is up; its health page is {data['health']}")
        invocation.output.flush()

    async def serve() -> None:
        async with notify_alive() as manager:
            await serve_browser(
                invocation.settings,
                invocation.state_dir,
                partial(announce, manager),
                until_input_ends=until_input_ends,
            )

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


def main() -> None:
    from palyra.cli.main import run_as_program

    sys.exit(run_as_program(browserd, "palyra-browserd", sys.argv[1:]))


if __name__ == "__main__":
    main()
