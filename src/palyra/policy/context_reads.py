"""Which attributes of the context a policy looks at: what it does not look at cannot change its answer."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

_CONTEXT: Final = {"Var": "context"}
# The two expressions that look at one attribute of what stands on their left.
ACCESSES: Final = (".", "has")


def context_reads(conditions: Iterable[Mapping[str, Any]]) -> frozenset[str] | None:
    """The names, from the conditions in Cedar's JSON form; None when the context is used as a whole."""
    names: set[str] = set()
    pending: list[Any] = [condition["body"] for condition in conditions]
    while pending:
        node = pending.pop()
        if node == _CONTEXT:
            return None
        if isinstance(node, dict):
            for operation, operands in node.items():
                if operation in ACCESSES and is_access(operands):
                    names.add(operands["attr"])
                else:
                    pending.append(operands)
        elif isinstance(node, list):
            pending.extend(node)
    return frozenset(names)


def is_access(operands: Any) -> bool:
    return (
        isinstance(operands, dict)
        and operands.keys() == {"left", "attr"}
        and operands["left"] == _CONTEXT
        and isinstance(operands["attr"], str)
    )


def together(reads: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    """What any of several policies looks at."""
    names: set[str] = set()
    for each in reads:
        if each is None:
            return None
        names |= each
    return frozenset(names)
