"""Each allowed name gets an address of its own in 127.0.0.0/8, all of which is local inside a sandbox's network
namespace: a connection to that address says exactly which name was wanted.
"""

from collections.abc import Iterable
from typing import Final

from palyra.egress.machine_limits import MAX_SYNTHETIC_NAMES
from palyra.errors import LimitExceeded

# Programs and resolvers listen in 127.0 (127.0.0.1, .0.53, .1.1); nobody uses the upper half of 127.
_SECOND: Final = 128
# Host parts 1 to 254: some programs take 0 and 255 for a network and its broadcast.
_PER_THIRD: Final = 254


class TooManyNames(LimitExceeded):
    code = "egress.too_many_names"
    hint = f"at most {MAX_SYNTHETIC_NAMES} names can be given to one sandbox; use a wildcard rule"


class SyntheticNames:
    """Names are canonical: lower case, ASCII, without a final dot. An address, once given, keeps its name."""

    def __init__(self, names: Iterable[str]) -> None:
        self._addresses: dict[str, str] = {}
        self._names: dict[str, str] = {}
        for name in names:
            if self.assign(name) is None:
                raise TooManyNames(f"more than {MAX_SYNTHETIC_NAMES} names are allowed")

    def __len__(self) -> int:
        return len(self._names)

    def assign(self, name: str) -> str | None:
        """The name's address, a new one where it has none yet; None when there are too many names."""
        known = self._addresses.get(name)
        if known is not None or len(self._names) >= MAX_SYNTHETIC_NAMES:
            return known
        third, last = divmod(len(self._names), _PER_THIRD)
        address = f"127.{_SECOND}.{third}.{last + 1}"
        self._addresses[name] = address
        self._names[address] = name
        return address

    def address_of(self, name: str) -> str | None:
        return self._addresses.get(name)

    def name_at(self, address: str) -> str | None:
        return self._names.get(address)

    def addresses(self) -> tuple[str, ...]:
        return tuple(self._names)
