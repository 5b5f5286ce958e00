"""One run of the command line: its options, and what it may need, made when first asked for.

A command takes it with ``@pass_invocation``, which gives the command ``--json`` too:

    @click.command()
    @pass_invocation
    def status(invocation: Invocation) -> None:
        invocation.output.data({"root": invocation.settings.workspace.root})
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import click

from palyra.cli.terminal import Output

if TYPE_CHECKING:
    from pathlib import Path

    from palyra.client.client import Client
    from palyra.config.load import LoadedSettings, Locations
    from palyra.config.state_dir import StateDir
    from palyra.daemon.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])


class Invocation:
    """``overrides`` are settings given as flags, by dotted name; fill them before ``settings`` is first read."""

    def __init__(self, arguments: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> None:
        self.arguments = tuple(arguments)
        self.environ: Mapping[str, str] = os.environ if environ is None else environ
        self.output = Output()
        self.config_option: Path | None = None
        self.state_dir_option: Path | None = None
        self.overrides: dict[str, Any] = {}

    @cached_property
    def locations(self) -> "Locations":
        from palyra.config.load import locate

        return locate(self.environ, config_option=self.config_option, state_dir_option=self.state_dir_option)

    @cached_property
    def loaded(self) -> "LoadedSettings[Settings]":
        from palyra.daemon.settings import load_settings

        return load_settings(self.locations.find_config_file(), self.environ, self.overrides)

    @property
    def settings(self) -> "Settings":
        return self.loaded.settings

    @property
    def located_settings(self) -> "Settings":
        """The settings with the files whose place depends on the settings file's own written out: for a gateway."""
        import msgspec

        settings = self.settings
        vault = msgspec.structs.replace(
            settings.vault, key_file=str(self.locations.vault_key_file(settings.vault.key_file))
        )
        return msgspec.structs.replace(settings, vault=vault)

    def location_options(self, *, absolute: bool = False) -> list[str]:
        """Return ``--config`` and ``--state-dir`` as they were given, for another command line."""
        words: list[str] = []
        for option, path in (("--config", self.config_option), ("--state-dir", self.state_dir_option)):
            if path is not None:
                words += [option, str(path.absolute() if absolute else path)]
        return words

    @property
    def config_path(self) -> "Path":
        return self.locations.config_file

    @property
    def state_path(self) -> "Path":
        """Where the state directory is or would be; nothing is made."""
        return self.locations.state_dir

    @cached_property
    def state_dir(self) -> "StateDir":
        """The state directory, made if absent and checked to be private."""
        from palyra.config.state_dir import StateDir

        return StateDir.open(self.state_path)


def _switch_json_on(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Invocation).output.json = True


def json_option(command: F) -> F:
    """``--json`` on a command, with the same meaning as before the noun."""
    return click.option(
        "--json",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_switch_json_on,
        help="Print one JSON document.",
    )(command)


pass_invocation_only = click.make_pass_decorator(Invocation, ensure=True)


def pass_invocation(command: Callable[..., Any]) -> Callable[..., Any]:
    """Pass the invocation to a command as its first argument, and give the command ``--json``."""
    return json_option(pass_invocation_only(command))


# A daemon on this machine that lives says so at once.
PROBE_SECONDS = 2.0


@contextmanager
def open_client(invocation: Invocation) -> "Iterator[Client]":
    """Open a client that acts as the owner of the state directory: of the running daemon, or of an embedded one."""
    client = running_daemon(invocation)
    if client is not None:
        with client:
            yield client
        return
    from palyra.client.client import Client
    from palyra.daemon.process_setup import keep_memory_private, made_to_stay

    with made_to_stay():
        from palyra.daemon.embedded import embedded_app

    # Keys and secrets are in this process then, as they are in a daemon.
    keep_memory_private()
    settings = invocation.located_settings
    policy_dir = invocation.locations.policy_dir(settings.policy.dir)
    with (
        embedded_app(settings, invocation.state_dir, policy_dir, invocation.config_path) as (app, token),
        Client.in_process(app, token=token) as client,
    ):
        yield client


def running_daemon(invocation: Invocation) -> "Client | None":
    """Return a client of the running daemon, or None. A port that another user took over is an error."""
    from palyra.client.address import NoDaemon, find_daemon
    from palyra.client.client import Client
    from palyra.client.operations import NotReady
    from palyra.client.protocol import BadAnswer, ClientTimeout, ConnectFailed, ConnectionLost

    try:
        daemon = find_daemon(invocation.state_path)
        # The question whether a daemon is there carries no token.
        with Client(daemon.url, timeout=PROBE_SECONDS) as probe:
            probe.health()
    except (NoDaemon, ConnectFailed, ConnectionLost, ClientTimeout, NotReady, BadAnswer):
        return None
    return Client(daemon.url, token=daemon.token)


def tell_of_newer_settings(invocation: Invocation) -> None:
    """Warn that the settings changed after the daemon read them at its start."""
    from palyra.client.address import started_before

    if started_before(invocation.state_path, invocation.config_path):
        invocation.output.note(
            f"{invocation.config_path} was changed after the daemon started: start it again for the change to hold"
        )
