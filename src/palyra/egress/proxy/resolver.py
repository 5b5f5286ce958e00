"""Resolver of names by the operator's list, the machine's file of hosts and the system's resolver, in this order.

The system's resolver blocks, so it runs on threads. It gets a name with a dot as an absolute one: the search list of
this machine must not turn ``api.example.com`` into a name of an inner network. For absolute names it skips the file of
hosts, so this module reads that file.
"""

import asyncio
import ctypes
import ipaddress
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from palyra.egress.domain.address import address_text
from palyra.egress.domain.refusal import EgressRefused, NameUnresolved, OddTarget
from palyra.egress.domain.target import canonical_host, is_address
from palyra.egress.limits import (
    LOOKUPS_OF_A_DOMAIN,
    MAX_ANSWERS,
    MAX_HOSTS_FILE_BYTES,
    MAX_WAITING_LOOKUPS,
    MAX_WAITING_LOOKUPS_OF_A_DOMAIN,
    OWN_ADDRESSES_FRESH_SECONDS,
    RESOLVE_TIMEOUT_SECONDS,
    RESOLVER_THREADS,
)

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
    """List every address of every interface with getifaddrs, in canonical text and without zones."""
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
            family = int.from_bytes(ctypes.string_at(start, 2), sys.byteorder)
            if family == socket.AF_INET:
                yield str(ipaddress.IPv4Address(ctypes.string_at(start + _IPV4_AT, 4)))
            elif family == socket.AF_INET6:
                yield address_text(ipaddress.IPv6Address(ctypes.string_at(start + _IPV6_AT, 16)))
        entry = entry.contents.next


class OwnAddresses:
    """This machine's addresses, read again after a few seconds.

    If the system then has no answer, the last one stays: the most important addresses are refused by their ranges.
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


HOSTS_FILE: Final = Path("/etc/hosts")
Lookup = Callable[[str], Sequence[str]]


def system_lookup(name: str) -> tuple[str, ...]:
    """Look up every address of a name, in the system's order of preference. Blocks."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


class _Line:
    def __init__(self) -> None:
        self.waiting: deque[str] = deque()
        self.running = 0


class SystemResolver:
    """Resolver whose every answer, also of the operator's own list, is judged by its caller."""

    def __init__(
        self,
        static_hosts: Mapping[str, tuple[str, ...]],
        *,
        lookup: Lookup = system_lookup,
        hosts_file: Path = HOSTS_FILE,
        timeout_seconds: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> None:
        self._static = {canonical_host(name): tuple(addresses) for name, addresses in static_hosts.items()}
        self._lookup = lookup
        self._hosts_file = hosts_file
        self._timeout = timeout_seconds
        self._threads = ThreadPoolExecutor(RESOLVER_THREADS, thread_name_prefix="egress-resolver")
        self._under_way: dict[str, asyncio.Future[Sequence[str]]] = {}
        self._lines: dict[str, _Line] = {}
        self._closed = False
        self._file_seen: tuple[int, int] = (0, 0)
        self._from_file: dict[str, tuple[str, ...]] = {}

    async def resolve(self, host: str) -> tuple[str, ...]:
        """Return every address of a canonical host, or raise ``NameUnresolved``. Concurrent callers share a lookup."""
        if is_address(host):
            return (host,)
        known = self._static.get(host) or self._hosts_file_answers(host)
        if known:
            return known
        try:
            # The lookup itself is not cancelled with the caller: a thread cannot be, and others may wait for it.
            async with asyncio.timeout(self._timeout):
                answers = await asyncio.shield(self._start_lookup(host))
        except TimeoutError:
            raise NameUnresolved(f"looking up {host} took longer than {self._timeout:g} s", host=host) from None
        except (OSError, UnicodeError) as error:
            raise NameUnresolved(f"{host} is not known: {_reason(error)}", host=host) from None
        if len(answers) > MAX_ANSWERS:
            raise NameUnresolved(f"{host} has {len(answers)} addresses, more than are looked at", host=host)
        return tuple(answers)

    def close(self) -> None:
        """Drop waiting lookups; those under way end by themselves."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _start_lookup(self, host: str) -> "asyncio.Future[Sequence[str]]":
        future = self._under_way.get(host)
        if future is None:
            domain = _domain_of(host)
            line = self._lines.get(domain) or _Line()
            if len(self._under_way) >= MAX_WAITING_LOOKUPS or len(line.waiting) >= MAX_WAITING_LOOKUPS_OF_A_DOMAIN:
                raise NameUnresolved(f"too many names are being looked up to begin with {host}", host=host)
            future = self._under_way[host] = asyncio.get_running_loop().create_future()
            self._lines[domain] = line
            line.waiting.append(host)
            self._begin(domain, line)
        return future

    def _begin(self, domain: str, line: "_Line") -> None:
        """Give threads to waiting lookups, but leave some to the names of other domains."""
        while line.waiting and line.running < LOOKUPS_OF_A_DOMAIN and not self._closed:
            host = line.waiting.popleft()
            asked = f"{host}." if "." in host else host
            line.running += 1
            looking = asyncio.get_running_loop().run_in_executor(self._threads, self._lookup, asked)
            looking.add_done_callback(partial(self._finish_lookup, domain, host))
        if not line.running:
            del self._lines[domain]

    def _finish_lookup(self, domain: str, host: str, looking: "asyncio.Future[Sequence[str]]") -> None:
        future = self._under_way.pop(host)
        if looking.cancelled():
            future.cancel()
        elif error := looking.exception():
            future.set_exception(error)
            # Retrieve the exception so asyncio does not log it if every caller has given up.
            future.exception()
        else:
            future.set_result(looking.result())
        line = self._lines[domain]
        line.running -= 1
        self._begin(domain, line)

    def _hosts_file_answers(self, host: str) -> tuple[str, ...]:
        try:
            status = os.stat(self._hosts_file)
            seen = (status.st_mtime_ns, status.st_size)
            if seen != self._file_seen and status.st_size <= MAX_HOSTS_FILE_BYTES:
                self._from_file = parse_hosts_file(self._hosts_file.read_text("utf-8", errors="replace"))
                self._file_seen = seen
        except OSError:
            return ()
        return self._from_file.get(host, ())


def _domain_of(host: str) -> str:
    """Return the last two labels: a rule with a star covers the names of one such domain at most."""
    return ".".join(host.split(".")[-2:])


def parse_hosts_file(text: str) -> dict[str, tuple[str, ...]]:
    """Parse a file of hosts. Skip invalid lines and odd names."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        try:
            canonical = address_text(ipaddress.ip_address(address))
        except ValueError:
            continue
        for name in names:
            try:
                found.setdefault(canonical_host(name), []).append(canonical)
            except OddTarget:
                continue
    return {name: tuple(dict.fromkeys(addresses)) for name, addresses in found.items()}


def _reason(error: OSError | UnicodeError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
