"""The ``palyra-workerd`` program: join a fleet, run its leases, show and leave it."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from palyra.cli.invocation import Invocation, pass_invocation
from palyra.cli.membership import read_code, render_membership, require_good_end
from palyra.cli.terminal import printable
from palyra.visible_text import escape_block, render_fields


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", metavar="FILE", type=click.Path(path_type=Path), help="Read settings from FILE.")
@click.option("--state-dir", metavar="DIR", type=click.Path(path_type=Path), help="Keep state in DIR.")
@pass_invocation
def workerd(invocation: Invocation, config: Path | None, state_dir: Path | None) -> None:
    """Run calls for a Palyra daemon on another machine.

    `palyra pair code --kind worker` at the daemon makes a code; join uses it; run does the work.
    """
    invocation.config_option = config
    invocation.state_dir_option = state_dir


@workerd.command("join")
@click.option("--server", "servers", multiple=True, metavar="HOST:PORT", help="Where to pair; repeatable.")
@click.option(
    "--code", metavar="CODE", help="The pairing code, as `palyra pair code` printed it; - reads it from stdin."
)
@click.option("--name", metavar="NAME", help="What this worker calls itself; default: the setting worker.name.")
@pass_invocation
def join(invocation: Invocation, servers: tuple[str, ...], code: str | None, name: str | None) -> None:
    """Join a daemon's fleet: prove the code, show six digits, wait for the person at the daemon.

    The private key is made here and stays here. Stopped in the middle, `palyra-workerd join` without a code goes on.
    """
    from palyra.daemon.worker_agent import WorkerHost
    from palyra.devicelink.pairing.code import ServerAddress, parse_code

    parsed = None if code is None else parse_code(read_code(code))
    host = WorkerHost(
        invocation.settings,
        invocation.state_dir,
        lambda text: invocation.output.note(escape_block(text)),
        name=name or "",
    )
    record = asyncio.run(host.join(parsed, tuple(ServerAddress.parse(each) for each in servers)))
    joined = {"worker_id": str.__str__(record.device_id), "name": record.device_name, "servers": list(record.servers)}
    invocation.output.data(joined, lambda data: f"joined as worker {data['worker_id']}: `palyra-workerd run` starts it")


@workerd.command("run")
@click.option("--slots", type=click.IntRange(1), metavar="N", help="Leases run at once; default: worker.slots.")
@click.option(
    "--egress-socket", metavar="PATH", help="Socket of this worker's palyra-egressd; default: worker.egress_socket."
)
@pass_invocation
def run(invocation: Invocation, slots: int | None, egress_socket: str | None) -> None:
    """Run leased calls in the foreground until Ctrl-C or SIGTERM.

    Leases that run then may end by themselves for a while; what is left is ended, cleaned up and reported.
    """
    from palyra.daemon.service_manager import notify_ready
    from palyra.daemon.worker_agent import WorkerHost
    from palyra.telemetry.log import set_up_log

    if slots is not None:
        invocation.overrides["worker.slots"] = slots
    if egress_socket is not None:
        invocation.overrides["worker.egress_socket"] = egress_socket
    log = set_up_log(invocation.settings.log)

    async def serve() -> Any:
        def say(text: str) -> None:
            log.say(printable(escape_block(text)))

        async with notify_ready("at work for the fleet"):
            return await WorkerHost(invocation.settings, invocation.state_dir, say).run()

    end = asyncio.run(serve())
    require_good_end(end)
    invocation.output.data({"ended": end.message}, lambda data: data["ended"])


@workerd.command("status")
@pass_invocation
def status(invocation: Invocation) -> None:
    """Show this worker's membership, whether it runs, and leases it has not settled."""
    from palyra.daemon.worker_agent import status_of

    invocation.output.data(
        status_of(invocation.state_dir),
        lambda data: render_membership("worker", data) if "name" in data else "this worker has joined no daemon",
    )


@workerd.command("leave")
@click.option("--forget", is_flag=True, help="Only forget it here: for a daemon that is gone for good.")
@pass_invocation
def leave(invocation: Invocation, forget: bool) -> None:
    """Leave the fleet: removed at the daemon, certificates revoked, key deleted here."""
    from palyra.daemon.worker_agent import leave as leave_fleet

    left = asyncio.run(leave_fleet(invocation.state_dir, forget_only=forget))
    invocation.output.data(left, lambda _: "this worker is in no fleet any more")


@workerd.command("measure")
@pass_invocation
def measure(invocation: Invocation) -> None:
    """Print the digests that this worker attests, to be pinned in the daemon's settings."""
    import msgspec

    from palyra.fleet.agent.facts import measure as measure_build

    found = msgspec.structs.asdict(measure_build(image_digest=invocation.settings.worker.image_digest_sha256))
    invocation.output.data(found, lambda data: render_fields(tuple((name, value) for name, value in data.items())))


def main() -> None:
    from palyra.cli.main import run_as_program

    sys.exit(run_as_program(workerd, "palyra-workerd", sys.argv[1:]))


if __name__ == "__main__":
    main()
