"""What an allowed call must be held to, written on the permits that allow it.

``@obligation_timeout_ms("5000")`` on a permit limits every call that permit helps to allow. Where several permits
match, the strictest value of each kind wins. An unknown name or a bad value is an error when the bundle is checked:
a misspelt limit must not become no limit.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

PREFIX: Final = "obligation_"

# From the weakest to the strictest.
TIERS: Final = ("b", "c", "a")
# ``@obligation_tier("worker")`` says where the call runs; in which sandbox there is another permit's, or the worker's,
# to say. So it is kept apart.
WORKER: Final = "worker"
EGRESS: Final = ("none", "preflight", "strict")
_MAX_NUMBER: Final = 2**53 - 1


class Obligations(msgspec.Struct, frozen=True, kw_only=True):
    """None means that no determining permit asked for anything of the kind."""

    timeout_ms: int | None = None
    max_output_bytes: int | None = None
    memory_bytes: int | None = None
    cpu_seconds: int | None = None
    tier: str | None = None
    egress: str | None = None
    read_only: bool | None = None
    place: str | None = None


NO_OBLIGATIONS: Final = Obligations()


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= _MAX_NUMBER):
        raise ValueError("is not a positive whole number")
    return int(text)


def _one_of(words: tuple[str, ...]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"is not one of {', '.join(words)}")
        return text

    return parse


def _flag(text: str) -> bool:
    return _one_of(("true", "false"))(text) == "true"


def _strictest_of(words: tuple[str, ...]) -> Callable[[Iterable[str]], str]:
    return lambda values: max(values, key=words.index)


_KINDS: Final[dict[str, tuple[Callable[[str], Any], Callable[[Any], Any]]]] = {
    "timeout_ms": (_number, min),
    "max_output_bytes": (_number, min),
    "memory_bytes": (_number, min),
    "cpu_seconds": (_number, min),
    "tier": (_one_of((*TIERS, WORKER)), _strictest_of(TIERS)),
    "egress": (_one_of(EGRESS), _strictest_of(EGRESS)),
    "read_only": (_flag, max),
}


def parse_obligations(annotations: Mapping[str, str], effect: str) -> tuple[Obligations, tuple[str, ...]]:
    """The obligations a policy's annotations state, and what is wrong with them. Each fault names its annotation."""
    found: dict[str, Any] = {}
    faults: list[str] = []
    for annotation, text in annotations.items():
        if not annotation.startswith(PREFIX):
            continue
        kind = _KINDS.get(annotation.removeprefix(PREFIX))
        if kind is None:
            known = ", ".join(f"@{PREFIX}{name}" for name in _KINDS)
            faults.append(f"`{annotation}` is not an obligation; known are {known}")
        elif effect != "permit":
            faults.append(f"`{annotation}` has no meaning on a forbid: obligations belong to permits")
        else:
            try:
                found[annotation.removeprefix(PREFIX)] = kind[0](text or "")
            except ValueError as error:
                faults.append(f"`{annotation}`: {text!r} {error}")
    if found.get("tier") == WORKER:
        found["place"] = found.pop("tier")
    return Obligations(**found), tuple(faults)


def strictest(several: Iterable[Obligations]) -> Obligations:
    stated: dict[str, list[Any]] = {}
    for obligations in several:
        if obligations == NO_OBLIGATIONS:
            continue
        for name in Obligations.__struct_fields__:
            if (value := getattr(obligations, name)) is not None:
                stated.setdefault(name, []).append(value)
    if not stated:
        return NO_OBLIGATIONS
    # There is one place that can be demanded.
    return Obligations(
        **{name: _KINDS[name][1](values) if name in _KINDS else values[0] for name, values in stated.items()}
    )
