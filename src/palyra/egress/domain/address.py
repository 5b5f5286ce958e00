"""Whether an address may be dialled, and which range forbids it."""

import ipaddress
from functools import lru_cache
from typing import Final

from palyra.egress.domain import address_table as table
from palyra.egress.domain.address_table import SpecialRange, Wrapping
from palyra.egress.domain.refusal import AddressForbidden, shown
from palyra.egress.limits import REMEMBERED_VERDICTS

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_LOW_32: Final = 0xFFFF_FFFF


@lru_cache(maxsize=REMEMBERED_VERDICTS)
def parse_address(address: str) -> Address:
    """An address from its text, as resolvers and sockets give it. A zone or any other addition is refused."""
    try:
        if "%" in address:
            raise ValueError
        return ipaddress.ip_address(address)
    except ValueError:
        raise AddressForbidden(
            f"{shown(address)!r} is no plain address", address=shown(address), range="no plain address"
        ) from None


def address_text(address: Address) -> str:
    """The one spelling of an address. Versions of Python spell an IPv4 address inside an IPv6 one in different ways."""
    inside = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(address) if inside is None else f"::ffff:{int(inside) >> 16:x}:{int(inside) & 0xFFFF:x}"


@lru_cache(maxsize=REMEMBERED_VERDICTS)
def canonical_address(address: str) -> str:
    return address_text(parse_address(address))


@lru_cache(maxsize=REMEMBERED_VERDICTS)
def range_of(address: str) -> SpecialRange | None:
    """The special range that an address lies in, by itself or by the IPv4 address inside it; None if it is public."""
    parsed = parse_address(address)
    if isinstance(parsed, ipaddress.IPv4Address):
        return _lookup(table.IPV4, int(parsed))
    return _range_of_ipv6(parsed)


@lru_cache(maxsize=REMEMBERED_VERDICTS)
def embedded_ipv4(address: str) -> tuple[str, ...]:
    """The IPv4 addresses inside an IPv6 address that is made around them; nothing for any other."""
    parsed = parse_address(address)
    wrapping = _wrapping_of(parsed) if isinstance(parsed, ipaddress.IPv6Address) else None
    return () if wrapping is None else tuple(map(str, _unwrap(wrapping, int(parsed))))


def judge_address(address: str, *, allow_private: bool, own: frozenset[str]) -> None:
    """Raises ``AddressForbidden`` for an address that must not be dialled.

    ``allow_private`` opens private networks and this machine, and nothing else. ``own`` are this machine's addresses,
    each in its canonical text.
    """
    found = range_of(address) or _own_range(address, own)
    if found is None or (found.openable and allow_private):
        return
    raise AddressForbidden(
        f"{shown(address)} is forbidden: {found.name}", address=shown(address), range=found.name, prefix=found.prefix
    )


def _own_range(address: str, own: frozenset[str]) -> SpecialRange | None:
    if canonical_address(address) in own:
        return table.OWN
    # A translator would bring the traffic back to us.
    if not own.isdisjoint(embedded_ipv4(address)):
        return _around(table.NAT64, table.OWN)
    return None


def _lookup(index: table.Index, value: int) -> SpecialRange | None:
    for shift, ranges in index:
        found = ranges.get(value >> shift)
        if found is not None:
            return found
    return None


def _range_of_ipv6(address: ipaddress.IPv6Address) -> SpecialRange | None:
    value = int(address)
    wrapping = _wrapping_of(address)
    if wrapping is None:
        return _lookup(table.IPV6, value)
    inner = (_lookup(table.IPV4, int(each)) for each in _unwrap(wrapping, value))
    special = next((found for found in inner if found is not None), None)
    if special is not None:
        return _around(wrapping, special)
    return None if wrapping is table.NAT64 else SpecialRange(prefix=wrapping.prefix, name=wrapping.name)


def _around(wrapping: Wrapping, inner: SpecialRange) -> SpecialRange:
    return SpecialRange(prefix=wrapping.prefix, name=f"{wrapping.name} around {inner.name}")


def _wrapping_of(address: ipaddress.IPv6Address) -> Wrapping | None:
    value = int(address)
    # :: and ::1 lie in the range of IPv4-compatible addresses and are not such.
    if value <= 1:
        return None
    for shift, prefix, wrapping in _WRAPPINGS:
        if value >> shift == prefix:
            return wrapping
    return table.ISATAP if value >> 32 & _LOW_32 in table.ISATAP_MARKS else None


def _unwrap(wrapping: Wrapping, value: int) -> tuple[ipaddress.IPv4Address, ...]:
    found = []
    for shift in wrapping.shifts:
        inner = value >> shift & _LOW_32
        found.append(ipaddress.IPv4Address(inner ^ _LOW_32 if shift in wrapping.inverted else inner))
    if wrapping.prefix == _LOCAL_NAT64:
        # RFC 6052 keeps bits 64 to 71 free: sixteen bits lie before them, sixteen after.
        found.append(ipaddress.IPv4Address((value >> 64 & 0xFFFF) << 16 | (value >> 40 & 0xFFFF)))
    return tuple(found)


_LOCAL_NAT64: Final = "64:ff9b:1::/48"


def _prepared(wrapping: Wrapping) -> tuple[int, int, Wrapping]:
    network = ipaddress.IPv6Network(wrapping.prefix)
    shift = 128 - network.prefixlen
    return shift, int(network.network_address) >> shift, wrapping


_WRAPPINGS: Final = tuple(map(_prepared, (*table.REFUSED_WRAPPINGS, table.NAT64)))
