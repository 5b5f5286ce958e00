"""Tool names as the protocol's clients take them: letters, digits, ``_`` and ``-``.

A dot becomes ``_`` and an underscore ``__``. No part of a tool's name begins with an underscore, so that every run of
underscores reads back in one way: pairs are underscores, and one that is left over at its end is a dot.
"""

import re
from typing import Final

from palyra.tools.spec import InvalidToolName, ToolName

_UNDERSCORES: Final = re.compile(r"_+")


def to_client(name: str) -> str:
    return name.replace("_", "__").replace(".", "_")


def from_client(raw: str) -> ToolName:
    """The tool that a client means. Its own name, with dots, is understood as well."""
    if "." in raw:
        return ToolName.parse(raw)
    read = _UNDERSCORES.sub(lambda run: "_" * (len(run[0]) // 2) + "." * (len(run[0]) % 2), raw)
    return ToolName.parse(read)


__all__ = ["InvalidToolName", "from_client", "to_client"]
