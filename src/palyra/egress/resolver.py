"""Names to addresses by the operator's list, the machine's file of hosts and the system's resolver, in this order.

The system's resolver blocks, so it works on threads of its own. A name with a dot is asked for as an absolute one: the
search list of this machine must not turn ``api.example.com`` into a name of somebody's inner network. The resolver does
not look into the file of hosts for absolute names, which is why this does.
"""

import asyncio
import ipaddress
import os
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from palyra.egress.address import address_text
from palyra.egress.host_name import canonical_host, is_address
from palyra.egress.limits import (
    LOOKUPS_OF_A_DOMAIN,
    MAX_ANSWERS,
    MAX_HOSTS_FILE_BYTES,
    MAX_WAITING_LOOKUPS,
    MAX_WAITING_LOOKUPS_OF_A_DOMAIN,
    RESOLVE_TIMEOUT_SECONDS,
    RESOLVER_THREADS,
)
from palyra.egress.refusal import NameUnresolved, OddTarget

HOSTS_FILE: Final = Path("/etc/hosts")
Lookup = Callable[[str], Sequence[str]]


def system_lookup(name: str) -> tuple[str, ...]:
    """Every address that the system has for a name, in its order of preference. Blocks."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


class _Line:
    """The names of one domain that wait for a thread, and how many have one."""

    def __init__(self) -> None:
        self.waiting: deque[str] = deque()
        self.running = 0


class SystemResolver:
    """Judges nothing: every address goes to the judge, also those of the operator's own list."""

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
        """Every address of a canonical host; raises ``NameUnresolved``. Callers at once for one name share a lookup."""
        if is_address(host):
            return (host,)
        known = self._static.get(host) or self._hosts_file_answers(host)
        if known:
            return known
        try:
            # The lookup itself is not cancelled with the caller: a thread cannot be, and others may wait for it.
            async with asyncio.timeout(self._timeout):
                answers = await asyncio.shield(self._started(host))
        except TimeoutError:
            raise NameUnresolved(f"looking up {host} took longer than {self._timeout:g} s", host=host) from None
        except (OSError, UnicodeError) as error:
            raise NameUnresolved(f"{host} is not known: {_reason(error)}", host=host) from None
        if len(answers) > MAX_ANSWERS:
            raise NameUnresolved(f"{host} has {len(answers)} addresses, more than are looked at", host=host)
        return tuple(answers)

    def close(self) -> None:
        """Lookups that wait are dropped; those under way end by themselves."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _started(self, host: str) -> "asyncio.Future[Sequence[str]]":
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
        """Gives threads to those who wait, and leaves some to the names of other domains."""
        while line.waiting and line.running < LOOKUPS_OF_A_DOMAIN and not self._closed:
            host = line.waiting.popleft()
            asked = f"{host}." if "." in host else host
            line.running += 1
            looking = asyncio.get_running_loop().run_in_executor(self._threads, self._lookup, asked)
            looking.add_done_callback(partial(self._ended, domain, host))
        if not line.running:
            del self._lines[domain]

    def _ended(self, domain: str, host: str, looking: "asyncio.Future[Sequence[str]]") -> None:
        future = self._under_way.pop(host)
        if looking.cancelled():
            future.cancel()
        elif error := looking.exception():
            future.set_exception(error)
            # Whoever waited may have given up; an error that nobody takes is not worth a warning.
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
    """The last two labels: no rule with a star covers the names of more than one such domain."""
    return ".".join(host.split(".")[-2:])


def parse_hosts_file(text: str) -> dict[str, tuple[str, ...]]:
    """The names of a file of hosts with their addresses. Lines that are none, and odd names, are passed over."""
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
