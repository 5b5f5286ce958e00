"""One run of the command line: its options, and what it may need, made when first asked for.

A command takes it with ``@pass_invocation`` and offers ``--json`` with ``@json_option``:

    @click.command()
    @json_option
    @pass_invocation
    def status(invocation: Invocation) -> None:
        invocation.output.data({"root": invocation.settings.workspace.root})
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import click

from palyra.cli.output import Output

if TYPE_CHECKING:
    from pathlib import Path

    from palyra.config.location import Locations
    from palyra.config.merge import LoadedSettings
    from palyra.config.settings import Settings
    from palyra.config.state_dir import StateDir

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
        from palyra.config.location import locate

        return locate(self.environ, config_option=self.config_option, state_dir_option=self.state_dir_option)

    @cached_property
    def loaded(self) -> "LoadedSettings":
        from palyra.config.load import load_settings

        return load_settings(self.locations.existing_config_file(), self.environ, self.overrides)

    @property
    def settings(self) -> "Settings":
        return self.loaded.settings

    @property
    def located_settings(self) -> "Settings":
        """The settings with the files whose place depends on the settings file's own written out: for a gateway."""
        import msgspec

        settings = self.settings
        vault = msgspec.structs.replace(settings.vault, key_file=str(self.locations.vault_key_file(settings)))
        return msgspec.structs.replace(settings, vault=vault)

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


pass_invocation = click.make_pass_decorator(Invocation, ensure=True)
