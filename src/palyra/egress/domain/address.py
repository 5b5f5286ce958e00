"""Judge whether an address may be dialled, and name the range that forbids it."""

import ipaddress
from functools import lru_cache
from typing import Final

import msgspec

from palyra.egress.domain.refusal import AddressForbidden, render
from palyra.egress.limits import REMEMBERED_VERDICTS

# Every range of addresses that is not the public internet, with the reason for each row.
#
# Written from the IANA registries of special-purpose addresses (IPv4 and IPv6), of IPv6 address space and of multicast,
# and from what clouds document about their metadata services. It is a table of our own because the standard library's
# ``is_global`` answers another question: it accepts NAT64, 6to4, IPv4-compatible addresses and multicast.
#
# Where rows overlap the longest prefix decides. All rows are refused, also those that the registry calls globally
# reachable: nobody serves tools from them, and some reach into the local network.


class SpecialRange(msgspec.Struct, frozen=True, kw_only=True):
    """A range that is refused. ``openable`` ranges are allowed for a target that the operator named as private."""

    prefix: str
    name: str
    openable: bool = False


class Wrapping(msgspec.Struct, frozen=True, kw_only=True):
    """A range of IPv6 addresses that hold IPv4 ones. ``shifts`` are where each lies, in bits from the right.

    ``inverted`` tells which of them are stored as their complement.
    """

    prefix: str
    name: str
    shifts: tuple[int, ...]
    inverted: tuple[int, ...] = ()


# Reached through allowed names these hand out the machine's or its owner's credentials. Never opened.
METADATA: Final = (
    ("169.254.169.254/32", "cloud metadata (AWS, Azure, Google, Oracle, OpenStack and most others)"),
    ("169.254.169.253/32", "cloud resolver (AWS)"),
    ("169.254.170.2/32", "task credentials (AWS ECS)"),
    ("169.254.170.23/32", "pod credentials (AWS EKS)"),
    ("169.254.0.23/32", "cloud metadata (Tencent)"),
    ("169.254.42.42/32", "cloud metadata (Scaleway)"),
    ("168.63.129.16/32", "host agent and resolver (Azure), a public number that is answered by the machine's host"),
    ("100.100.100.200/32", "cloud metadata (Alibaba)"),
    ("192.0.0.192/32", "cloud metadata (Oracle, older machines)"),
    # Amazon keeps metadata (::254), resolver (::253), time (::123) and pod credentials (::23) in one local network.
    ("fd00:ec2::/32", "cloud metadata and credentials (AWS)"),
    ("fd20:ce::254/128", "cloud metadata (Google)"),
    ("fd00:42::42/128", "cloud metadata (Scaleway)"),
    ("fd00:c1::a9fe:a9fe/128", "cloud metadata (Oracle)"),
    ("fd00:a9fe:a9fe::1/128", "cloud metadata (Linode)"),
    ("fe80::a9fe:a9fe/128", "cloud metadata (OpenStack)"),
)

# What `private_targets` may open: networks of one's own, and this machine.
PRIVATE: Final = (
    ("10.0.0.0/8", "private network (RFC 1918)"),
    ("172.16.0.0/12", "private network (RFC 1918)"),
    ("192.168.0.0/16", "private network (RFC 1918)"),
    ("127.0.0.0/8", "loopback"),
    ("::1/128", "loopback"),
    ("fc00::/7", "unique local network (RFC 4193)"),
)

CLOSED: Final = (
    ("0.0.0.0/8", "this network (RFC 791); systems connect 0.0.0.0 to themselves"),
    ("0.0.0.0/32", "unspecified address, which connects to this machine"),
    ("100.64.0.0/10", "shared address space of carriers and overlay networks (RFC 6598)"),
    ("169.254.0.0/16", "link local (RFC 3927)"),
    ("192.0.0.0/24", "protocol assignments (RFC 6890)"),
    ("192.0.0.0/29", "service continuity of IPv4 over IPv6 (RFC 7335)"),
    ("192.0.0.8/32", "dummy address (RFC 7600)"),
    ("192.0.0.9/32", "port control anycast (RFC 7723), answered by the local router"),
    ("192.0.0.10/32", "relay anycast (RFC 8155), answered by the local network"),
    ("192.0.0.170/32", "NAT64 discovery (RFC 7050)"),
    ("192.0.0.171/32", "NAT64 discovery (RFC 7050)"),
    ("192.0.2.0/24", "documentation (RFC 5737)"),
    ("192.31.196.0/24", "AS112 sink (RFC 7535)"),
    ("192.52.193.0/24", "multicast tunnels (RFC 7450)"),
    ("192.88.99.0/24", "6to4 relay anycast, deprecated (RFC 7526)"),
    ("192.88.99.2/32", "6a44 relay anycast (RFC 6751)"),
    ("192.175.48.0/24", "AS112 sink (RFC 7534)"),
    ("198.18.0.0/15", "benchmarking (RFC 2544)"),
    ("198.51.100.0/24", "documentation (RFC 5737)"),
    ("203.0.113.0/24", "documentation (RFC 5737)"),
    ("224.0.0.0/4", "multicast (RFC 5771)"),
    ("240.0.0.0/4", "reserved (RFC 1112)"),
    ("255.255.255.255/32", "limited broadcast (RFC 919)"),
    # IPv6 outside 2000::/3 is not the public internet, whatever it is; each block is named as the registry names it.
    ("::/8", "reserved by the IETF (RFC 4291)"),
    ("::/128", "unspecified address, which connects to this machine"),
    ("100::/8", "reserved by the IETF (RFC 4291)"),
    ("100::/64", "discard only (RFC 6666)"),
    ("100:0:0:1::/64", "dummy prefix (RFC 9780)"),
    ("200::/7", "reserved, once for NSAP (RFC 4048)"),
    ("400::/6", "reserved by the IETF (RFC 4291)"),
    ("800::/5", "reserved by the IETF (RFC 4291)"),
    ("1000::/4", "reserved by the IETF (RFC 4291)"),
    ("2001::/23", "protocol assignments (RFC 2928)"),
    ("2001:1::1/128", "port control anycast (RFC 7723), answered by the local router"),
    ("2001:1::2/128", "relay anycast (RFC 8155), answered by the local network"),
    ("2001:1::3/128", "service registration anycast (RFC 9665), answered by the local network"),
    ("2001:2::/48", "benchmarking (RFC 5180)"),
    ("2001:3::/32", "multicast tunnels (RFC 7450)"),
    ("2001:4:112::/48", "AS112 sink (RFC 7535)"),
    ("2001:10::/28", "hash identifiers, deprecated (RFC 4843)"),
    ("2001:20::/28", "hash identifiers, not routed (RFC 7343)"),
    ("2001:30::/28", "drone identifiers, not routed (RFC 9374)"),
    ("2001:db8::/32", "documentation (RFC 3849)"),
    ("2620:4f:8000::/48", "AS112 sink (RFC 7534)"),
    ("3ffe::/16", "6bone, returned (RFC 3701)"),
    ("3fff::/20", "documentation (RFC 9637)"),
    ("4000::/3", "reserved by the IETF (RFC 4291)"),
    ("5f00::/16", "segment routing identifiers (RFC 9602)"),
    ("6000::/3", "reserved by the IETF (RFC 4291)"),
    ("8000::/3", "reserved by the IETF (RFC 4291)"),
    ("a000::/3", "reserved by the IETF (RFC 4291)"),
    ("c000::/3", "reserved by the IETF (RFC 4291)"),
    ("e000::/4", "reserved by the IETF (RFC 4291)"),
    ("f000::/5", "reserved by the IETF (RFC 4291)"),
    ("f800::/6", "reserved by the IETF (RFC 4291)"),
    ("fe00::/9", "reserved by the IETF (RFC 4291)"),
    ("fe80::/10", "link local (RFC 4291)"),
    ("fec0::/10", "site local, deprecated (RFC 3879)"),
    ("ff00::/8", "multicast (RFC 4291)"),
)

# No server is given such an address on purpose, and the traffic goes to the inner one. Refused, whatever is inside.
REFUSED_WRAPPINGS: Final = (
    Wrapping(prefix="::/96", name="IPv4-compatible address (RFC 4291)", shifts=(0,)),
    Wrapping(prefix="::ffff:0:0/96", name="IPv4-mapped address (RFC 4291)", shifts=(0,)),
    Wrapping(prefix="::ffff:0:0:0/96", name="IPv4-translated address (RFC 2765)", shifts=(0,)),
    # A network of one's own behind a translator: no rule says that the inner address is a public one. It stands on both
    # sides of the octet that RFC 6052 keeps free, or at the end where the translator's own prefix is longer.
    Wrapping(prefix="64:ff9b:1::/48", name="local NAT64 (RFC 8215)", shifts=(0,)),
    Wrapping(prefix="2001::/32", name="Teredo tunnel (RFC 4380)", shifts=(64, 0), inverted=(0,)),
    Wrapping(prefix="2002::/16", name="6to4 tunnel (RFC 3056)", shifts=(80,)),
)
# On networks without IPv4 every IPv4 host is reached through this prefix, and translators must not carry inner
# addresses that are not global (RFC 6052). So the inner address decides.
NAT64: Final = Wrapping(prefix="64:ff9b::/96", name="NAT64 (RFC 6052)", shifts=(0,))
# In any network: the lower half says that a tunnel ends at the IPv4 address within.
ISATAP_MARKS: Final = (0x0000_5EFE, 0x0200_5EFE)
ISATAP: Final = Wrapping(prefix="::5efe:0:0/96", name="ISATAP tunnel (RFC 5214)", shifts=(0,))

OWN: Final = SpecialRange(prefix="", name="this machine's own address", openable=True)

# For each IP version, from the longest prefix to the shortest: how far to shift an address, and what lies there.
Index = tuple[tuple[int, dict[int, SpecialRange]], ...]


def _rows() -> list[SpecialRange]:
    return [
        *(SpecialRange(prefix=prefix, name=name) for prefix, name in METADATA),
        *(SpecialRange(prefix=prefix, name=name, openable=True) for prefix, name in PRIVATE),
        *(SpecialRange(prefix=prefix, name=name) for prefix, name in CLOSED),
    ]


def _index(version: int) -> Index:
    bits = 32 if version == 4 else 128
    levels: dict[int, dict[int, SpecialRange]] = {}
    for row in _rows():
        network = ipaddress.ip_network(row.prefix)
        if network.version == version:
            shift = bits - network.prefixlen
            levels.setdefault(shift, {})[int(network.network_address) >> shift] = row
    return tuple(sorted(levels.items()))


IPV4: Final = _index(4)
IPV6: Final = _index(6)


Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_LOW_32: Final = 0xFFFF_FFFF


@lru_cache(maxsize=REMEMBERED_VERDICTS)
def parse_address(address: str) -> Address:
    """Parse an address as resolvers and sockets give it. Refuse a zone or any other addition."""
    try:
        if "%" in address:
            raise ValueError
        return ipaddress.ip_address(address)
    except ValueError:
        raise AddressForbidden(
            f"{render(address)!r} is no plain address",
            address=render(address),
            range="no plain address",
        ) from None


def address_text(address: Address) -> str:
    """Write an address in one spelling: Python versions spell an IPv4 address inside an IPv6 one differently."""
    inside = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(address) if inside is None else f"::ffff:{int(inside) >> 16:x}:{int(inside) & 0xFFFF:x}"


@lru_cache(maxsize=REMEMBERED_VERDICTS)
def canonical_address(address: str) -> str:
    return address_text(parse_address(address))


@lru_cache(maxsize=REMEMBERED_VERDICTS)
def range_of(address: str) -> SpecialRange | None:
    """Return the special range of an address, or of the IPv4 address inside it; None if it is public."""
    parsed = parse_address(address)
    if isinstance(parsed, ipaddress.IPv4Address):
        return _lookup(IPV4, int(parsed))
    return _range_of_ipv6(parsed)


@lru_cache(maxsize=REMEMBERED_VERDICTS)
def embedded_ipv4(address: str) -> tuple[str, ...]:
    """Return the IPv4 addresses inside an IPv6 address that wraps them; empty for any other."""
    parsed = parse_address(address)
    wrapping = _wrapping_of(parsed) if isinstance(parsed, ipaddress.IPv6Address) else None
    return () if wrapping is None else tuple(map(str, _unwrap(wrapping, int(parsed))))


def judge_address(address: str, *, allow_private: bool, own: frozenset[str]) -> None:
    """Raise ``AddressForbidden`` for an address that must not be dialled.

    ``allow_private`` opens private networks and this machine, and nothing else. ``own`` are this machine's addresses
    in canonical text.
    """
    found = range_of(address) or _own_range(address, own)
    if found is None or (found.openable and allow_private):
        return
    raise AddressForbidden(
        f"{render(address)} is forbidden: {found.name}",
        address=render(address),
        range=found.name,
        prefix=found.prefix,
    )


def _own_range(address: str, own: frozenset[str]) -> SpecialRange | None:
    if canonical_address(address) in own:
        return OWN
    # A translator would bring the traffic back to us.
    if not own.isdisjoint(embedded_ipv4(address)):
        return _around(NAT64, OWN)
    return None


def _lookup(index: Index, value: int) -> SpecialRange | None:
    for shift, ranges in index:
        found = ranges.get(value >> shift)
        if found is not None:
            return found
    return None


def _range_of_ipv6(address: ipaddress.IPv6Address) -> SpecialRange | None:
    value = int(address)
    wrapping = _wrapping_of(address)
    if wrapping is None:
        return _lookup(IPV6, value)
    inner = (_lookup(IPV4, int(each)) for each in _unwrap(wrapping, value))
    special = next((found for found in inner if found is not None), None)
    if special is not None:
        return _around(wrapping, special)
    return None if wrapping is NAT64 else SpecialRange(prefix=wrapping.prefix, name=wrapping.name)


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
    return ISATAP if value >> 32 & _LOW_32 in ISATAP_MARKS else None


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


def _prepare_wrapping(wrapping: Wrapping) -> tuple[int, int, Wrapping]:
    network = ipaddress.IPv6Network(wrapping.prefix)
    shift = 128 - network.prefixlen
    return shift, int(network.network_address) >> shift, wrapping


_WRAPPINGS: Final = tuple(map(_prepare_wrapping, (*REFUSED_WRAPPINGS, NAT64)))
