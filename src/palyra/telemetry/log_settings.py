"""The settings of a daemon's log: the section `log`."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


def _says(description: str) -> Meta:
    return Meta(description=description)


class LogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Annotated[
        Literal["text", "json"], _says("How daemons log to stderr: lines for people, or one JSON document a line.")
    ] = "text"
    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        _says("The least that is logged; `palyra up` at a terminal logs warnings unless this is set."),
    ] = "info"
