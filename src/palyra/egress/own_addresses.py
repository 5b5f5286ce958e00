"""This machine's own addresses, asked of the system with getifaddrs and kept for a few seconds."""

import ctypes
import ipaddress
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

from palyra.egress.address import address_text
from palyra.egress.limits import OWN_ADDRESSES_FRESH_SECONDS
from palyra.egress.refusal import EgressRefused

# BSD systems put the length of a socket address before its family and have one byte for each; Linux has two for one.
_FAMILY_IS_ONE_BYTE: Final = sys.platform != "linux"
# In a socket address of either family the port lies before the address; IPv6 has its flow label there too.
_IPV4_AT: Final = 4
_IPV6_AT: Final = 8


class OwnAddressesUnknown(EgressRefused):
    code = "egress.own_addresses_unknown"
    hint = "the system did not list its network interfaces; nothing goes out until it does"


class _Ifaddrs(ctypes.Structure):
    pass


_Ifaddrs._fields_ = [
    ("next", ctypes.POINTER(_Ifaddrs)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]


def read_own_addresses() -> frozenset[str]:
    """Every address of every interface now, in canonical text and without zones."""
    libc = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_Ifaddrs)()
    libc.freeifaddrs.argtypes = [ctypes.POINTER(_Ifaddrs)]
    libc.freeifaddrs.restype = None
    if libc.getifaddrs(ctypes.byref(first)) != 0:
        raise OwnAddressesUnknown(f"this machine's addresses cannot be read (errno {ctypes.get_errno()})")
    try:
        return frozenset(_addresses(first))
    finally:
        libc.freeifaddrs(first)


def _addresses(entry: "ctypes._Pointer[_Ifaddrs]") -> Iterator[str]:
    while entry:
        start = entry.contents.address
        if start:
            head = ctypes.string_at(start, 2)
            family = head[1] if _FAMILY_IS_ONE_BYTE else int.from_bytes(head, sys.byteorder)
            if family == socket.AF_INET:
                yield str(ipaddress.IPv4Address(ctypes.string_at(start + _IPV4_AT, 4)))
            elif family == socket.AF_INET6:
                yield address_text(ipaddress.IPv6Address(ctypes.string_at(start + _IPV6_AT, 16)))
        entry = entry.contents.next


class OwnAddresses:
    """Callable as the judge wants it. An answer is kept a while; then the system is asked again.

    Where it then has no answer the last one stays: the addresses that matter most are refused by their ranges anyway.
    """

    def __init__(
        self,
        *,
        read: Callable[[], frozenset[str]] = read_own_addresses,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._now = now
        self._known: frozenset[str] = frozenset()
        self._good_until = float("-inf")

    def __call__(self) -> frozenset[str]:
        now = self._now()
        if now >= self._good_until:
            try:
                self._known = self._read()
            except OwnAddressesUnknown:
                if not self._known:
                    raise
            self._good_until = now + OWN_ADDRESSES_FRESH_SECONDS
        return self._known
