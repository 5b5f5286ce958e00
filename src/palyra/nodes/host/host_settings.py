"""The settings of a node host: the section `node` of the device's own settings file."""

from typing import Annotated

import msgspec
from msgspec import Meta

from palyra.nodes.host import limits
from palyra.nodes.host.command_plan import CommandPlan
from palyra.nodes.limits import MAX_DEVICE_NAME_CHARS


def _says(description: str) -> Meta:
    return Meta(description=description)


Word = Annotated[str, Meta(min_length=1, max_length=limits.MAX_PARAMETER_CHARS)]
Argv = Annotated[tuple[Word, ...], Meta(max_length=limits.MAX_ARGV)]
Glob = Annotated[str, Meta(min_length=1, max_length=64)]


class NodeHostSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[
        str, Meta(max_length=MAX_DEVICE_NAME_CHARS), _says("What this device calls itself; empty means its host name.")
    ] = ""
    ask: Annotated[
        tuple[Glob, ...], _says("Capabilities that the person at this device is asked about each time, as globs.")
    ] = ("open_url",)
    open_url_command: Annotated[
        Argv, _says("Program and words that a web address is added to; empty means xdg-open, or open on macOS.")
    ] = ()
    notify_command: Annotated[
        Argv, _says("Program and words that title and text are added to; empty means notify-send, else the terminal.")
    ] = ()
    commands: Annotated[
        dict[str, CommandPlan], _says("Commands that the daemon may have run here, by name, each in the sandbox.")
    ] = {}
