"""Modules that are imported when they are first used, so that a command pays for what it needs and for nothing else.

Where a module is named, type checkers and the import contracts are to see an ordinary import::

    if TYPE_CHECKING:
        from palyra.daemons import node_parts
    else:
        node_parts = when_used("palyra.daemons.node_parts")

From then on ``node_parts.NodeParts`` is the class, whoever asks for it first.
"""

from importlib import import_module
from typing import Any


class ModuleWhenUsed:
    """Stands for a module, and has whatever the module has at that moment."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)

    def __repr__(self) -> str:
        return f"<{self._name}, when it is used>"


def when_used(name: str) -> ModuleWhenUsed:
    return ModuleWhenUsed(name)
