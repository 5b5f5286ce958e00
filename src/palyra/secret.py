"""Secret that cannot be printed by accident. Only ``reveal()`` returns the value: grep for it."""

import hmac
from typing import Any, NoReturn

REDACTED = "[redacted]"


class Secret:
    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def matches(self, other: "Secret | str") -> bool:
        """Compare in constant time."""
        theirs = other._value if isinstance(other, Secret) else other
        return hmac.compare_digest(self._value.encode(), theirs.encode())

    def __repr__(self) -> str:
        return REDACTED

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return REDACTED

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.matches(other)

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not pickled: pass a vault reference instead")

    def __bool__(self) -> bool:
        raise TypeError("test a Secret's presence with `is None`, not its truth")

    def __json__(self) -> Any:
        return REDACTED
