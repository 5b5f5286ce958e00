"""Names to addresses by the operator's list, the machine's file of hosts and the system's resolver, in this order.

The system's resolver blocks, so it works on threads of its own. A name with a dot is asked for as an absolute one: the
search list of this machine must not turn ``api.example.com`` into a name of somebody's inner network. The resolver does
not look into the file of hosts for absolute names, which is why this does.
"""

import asyncio
import ipaddress
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from palyra.egress.host_name import canonical_host, is_address
from palyra.egress.limits import (
    MAX_ANSWERS,
    MAX_HOSTS_FILE_BYTES,
    MAX_WAITING_LOOKUPS,
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
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _started(self, host: str) -> "asyncio.Future[Sequence[str]]":
        future = self._under_way.get(host)
        if future is None:
            if len(self._under_way) >= MAX_WAITING_LOOKUPS:
                raise NameUnresolved(f"too many names are being looked up to begin with {host}", host=host)
            asked = f"{host}." if "." in host else host
            future = asyncio.get_running_loop().run_in_executor(self._threads, self._lookup, asked)
            self._under_way[host] = future
            future.add_done_callback(partial(self._ended, host))
        return future

    def _ended(self, host: str, future: "asyncio.Future[Any]") -> None:
        self._under_way.pop(host, None)
        # Whoever waited may have given up; an error that nobody takes is not worth a warning.
        if not future.cancelled():
            future.exception()

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


def parse_hosts_file(text: str) -> dict[str, tuple[str, ...]]:
    """The names of a file of hosts with their addresses. Lines that are none, and odd names, are passed over."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        try:
            canonical = str(ipaddress.ip_address(address))
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
