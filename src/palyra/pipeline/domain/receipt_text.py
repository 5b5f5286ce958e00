"""Numbers of bytes in a receipt, in the units that people read. It is signed as it is: this is for showing it."""

import re
from typing import Final

import msgspec

KIB: Final = 1024
_UNITS: Final = ("B", "KiB", "MiB", "GiB")
_NAMED: Final = re.compile(r"(?P<bytes>\d+) bytes\b(?: up, (?P<down>\d+) down)?")
_NETWORK: Final = "network bytes"
# Layers whose numbers do not say that they are bytes.
_OF_LAYER: Final = {
    "cgroup_memory": re.compile(r"\bcgroup v\d: (?P<bytes>\d+)"),
    _NETWORK: re.compile(r"(?P<bytes>\d+)"),
    "rlimits": re.compile(r"\b(?:AS|CORE|DATA|FSIZE|MEMLOCK|MSGQUEUE|STACK) (?P<bytes>\d+)"),
    "wasm": re.compile(r"\bmemory (?:at most )?(?P<bytes>\d+)"),
}


class Amount(msgspec.Struct, frozen=True):
    """A stretch of a receipt's text; ``count`` is the number of bytes that it tells, or None."""

    text: str
    count: int | None = None


def format_size(count: int) -> str:
    amount = float(count)
    for unit in _UNITS:
        if amount < KIB or unit == _UNITS[-1]:
            break
        amount /= KIB
    return f"{amount:.0f} {unit}" if amount >= 10 or amount.is_integer() else f"{amount:.1f} {unit}"


def is_exact(count: int) -> bool:
    """Whether its size says all of it."""
    number, unit = format_size(count).split()
    whole: int = KIB ** _UNITS.index(unit)
    return float(number) * whole == count


def split_amounts(layer: str, text: str) -> tuple[Amount, ...]:
    """Split a text into stretches. An amount below one KiB stays as it is, unless it lacks its unit."""
    found: dict[int, tuple[int, int]] = {}
    for pattern in (_NAMED, _OF_LAYER.get(layer)):
        for match in pattern.finditer(text) if pattern is not None else ():
            begin, end = match.span("bytes")
            found[begin] = (end + len(" bytes") if text.startswith(" bytes", end) else end, int(match["bytes"]))
            if match.groupdict().get("down"):
                found[match.start("down")] = (match.end("down"), int(match["down"]))
    made, at = [], 0
    for begin, (end, count) in sorted(found.items()):
        if (count >= KIB or layer == _NETWORK) and begin >= at:
            made += [Amount(text[at:begin]), Amount(text[begin:end], count)]
            at = end
    return tuple(each for each in (*made, Amount(text[at:])) if each.text)


def format_sizes(layer: str, text: str) -> str:
    return "".join(each.text if each.count is None else format_size(each.count) for each in split_amounts(layer, text))
