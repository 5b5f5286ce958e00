"""The one way from a command to the API: the running daemon's, or an embedded one when none runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from palyra.cli.invocation import Invocation
from palyra.cli.made_to_stay import made_to_stay
from palyra.client.client import Client
from palyra.client.local import NoDaemon, find_daemon, started_before
from palyra.client.operations import NotReady
from palyra.client.protocol import BadAnswer, ClientTimeout, ConnectFailed, ConnectionLost

# A daemon on this machine that lives says so at once.
PROBE_SECONDS = 2.0


@contextmanager
def open_client(invocation: Invocation) -> Iterator[Client]:
    """A client that speaks as the owner of the state directory."""
    client = running_daemon(invocation)
    if client is not None:
        with client:
            yield client
        return
    with made_to_stay():
        from palyra.daemons.embedded import embedded_app

    settings = invocation.located_settings
    policy_dir = invocation.locations.policy_dir(settings)
    with (
        embedded_app(settings, invocation.state_dir, policy_dir, invocation.config_path) as (app, token),
        Client.in_process(app, token=token) as client,
    ):
        yield client


def running_daemon(invocation: Invocation) -> Client | None:
    """None where no daemon lives. A port that another user took over is an error, not a reason to go on."""
    try:
        daemon = find_daemon(invocation.state_path)
        # The question whether a daemon is there carries no token.
        with Client(daemon.url, timeout=PROBE_SECONDS) as probe:
            probe.health()
    except (NoDaemon, ConnectFailed, ConnectionLost, ClientTimeout, NotReady, BadAnswer):
        return None
    return Client(daemon.url, token=daemon.token)


def tell_of_newer_settings(invocation: Invocation) -> None:
    """A daemon reads its settings when it starts. Whoever has changed them since wonders why nothing is different."""
    if started_before(invocation.state_path, invocation.config_path):
        invocation.output.note(
            f"{invocation.config_path} was changed after the daemon started: start it again for the change to hold"
        )
