"""One escape attempt as a value: what is tried, in which tiers, and which layer each tier promises to stop it with."""

from enum import StrEnum
from typing import Any

import msgspec

from palyra.sandbox.domain.profile import Layer, SandboxTier

Layers = tuple[Layer, ...]


class AttackClass(StrEnum):
    FILES = "files"
    KERNEL = "kernel"
    PROCESSES = "processes"
    NETWORK = "network"
    RESOURCES = "resources"
    ENVIRONMENT = "interpreters and environment"


class Bait(StrEnum):
    """Things in the workspace for one attempt only."""

    LINKS_OUT = "links_out"
    GHOST_LINK = "ghost_link"
    SHELLS = "shells"
    ALIAS = "alias"
    # A repository, and a person who looks at the workspace after the attempt.
    PERSON = "person"


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One escape attempt. ``c`` and ``b`` are the layers with which that tier promises to stop it, the foremost first.

    ``None`` means that it is not tried there. An empty tuple means that it is tried and nothing is promised: its result
    is reported but is no failure. A promise counts where at least one of its layers held, as the receipt has it;
    ``not_for_root`` names layers that do not bind the host's root user.

    Strings in ``arguments``, ``command`` and ``env`` may name bait as ``{secret}``. An attempt with a ``command`` runs
    that instead of the probe, with interpreters forbidden. ``refused_by`` are the sandbox's errors, and ``ended_by``
    the signals, that mean it was stopped. ``seen_outside`` says that the probe may well succeed within its own walls:
    then only what shows outside counts.
    """

    id: str
    kind: AttackClass
    title: str
    c: Layers | None = None
    b: Layers | None = None
    probe: str = ""
    arguments: dict[str, Any] = {}
    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    limits: dict[str, int] = {}
    refused_by: tuple[str, ...] = ()
    ended_by: tuple[int, ...] = ()
    not_for_root: frozenset[Layer] = frozenset()
    bait: frozenset[Bait] = frozenset()
    seen_outside: bool = False

    def promise(self, tier: SandboxTier) -> Layers | None:
        return self.c if tier is SandboxTier.C else self.b


def fill_names(value: Any, names: dict[str, Any]) -> Any:
    """Replace every ``{name}`` in the value's strings. A string that is one name alone becomes that value."""
    if isinstance(value, str):
        if value.startswith("{") and value.endswith("}") and value[1:-1] in names:
            return names[value[1:-1]]
        for name, content in names.items():
            value = value.replace("{" + name + "}", str(content))
        return value
    if isinstance(value, dict):
        return {key: fill_names(each, names) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [fill_names(each, names) for each in value]
    return value
