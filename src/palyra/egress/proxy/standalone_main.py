"""One budget of bytes for several proxy processes at the same address.

A file that all of them hold says how much of the budget has been handed out. A process takes a portion under a lock and
spends it alone, so that all together never move a byte more, and ordinary reads cost no lock. What a process took and
did not spend is lost to the others: portions are small against what is left.
"""

import argparse
import asyncio
import contextlib
import fcntl
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from palyra.egress.domain.events import EgressEvent, Refused
from palyra.egress.domain.grant import ByteBudget, EgressGrant
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.domain.rules import HostRule
from palyra.egress.domain.target import Target
from palyra.egress.limits import (
    LISTEN_BACKLOG,
    MAX_LEASE_BYTES,
    MAX_PROCESSES,
    MAX_TUNNELS,
    MIN_LEASE_BYTES,
    SHARES_OF_THE_REST,
    ProxyLimits,
)
from palyra.egress.proxy.dial import Upstream
from palyra.egress.proxy.resolver import OwnAddresses, SystemResolver
from palyra.egress.proxy.server import EgressProxy, ListeningSocket, raise_descriptor_limit, tunnels_within
from palyra.errors import PalyraError

_COUNT_BYTES = 8


class BudgetFile:
    """``taken`` bytes of ``total``. Its descriptor is inherited; a process that dies under the lock gives it back."""

    def __init__(self, total: int, descriptor: int) -> None:
        self.total = total
        self.descriptor = descriptor

    @classmethod
    def create(cls, total: int) -> "BudgetFile":
        with tempfile.TemporaryFile() as file:
            made = cls(total, os.dup(file.fileno()))
        os.pwrite(made.descriptor, bytes(_COUNT_BYTES), 0)
        return made

    def lease(self) -> int:
        """A portion of what is left for the caller alone; 0 when all is handed out."""
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX)
        try:
            taken = int.from_bytes(os.pread(self.descriptor, _COUNT_BYTES, 0), "little")
            left = self.total - taken
            portion = min(left, MAX_LEASE_BYTES, max(left // SHARES_OF_THE_REST, MIN_LEASE_BYTES))
            os.pwrite(self.descriptor, (taken + portion).to_bytes(_COUNT_BYTES, "little"), 0)
        finally:
            fcntl.lockf(self.descriptor, fcntl.LOCK_UN)
        return portion

    def close(self) -> None:
        os.close(self.descriptor)


class LeasedBudget(ByteBudget):
    """This process's part of a shared budget: it grows while the file has more. Setting ``limit`` ends that."""

    __slots__ = ("_file", "_grows", "_limit")

    def __init__(self, file: BudgetFile) -> None:
        super().__init__(0)
        self._file = file
        self._grows = True

    @property
    def limit(self) -> int:
        if self._grows and self._limit - self.up - self.down < MIN_LEASE_BYTES:
            self._grow()
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = limit
        self._grows = False

    def extend(self, count: int) -> int:
        while self._grows and self._limit - self.spent < count:
            self._grow()
        return self._limit - self.spent

    def _grow(self) -> None:
        portion = self._file.lease()
        self._grows = portion > 0
        self._limit += portion

    @property
    def granted(self) -> int:
        return self._file.total


# The egress proxy as a process of its own: ``python -m palyra.egress.proxy.standalone_main --listen ADDRESS --allow
# HOST``.
#
# Its first line on standard output says where it listens; every refusal is a JSON line on standard error. It ends
# with SIGTERM, SIGINT or, if asked to, with its standard input.
#
# One process serves one core, and is the quickest for a client that is alone. ``--processes`` starts several that
# share the address, for many clients at once on a machine with cores to spare. ``--max-bytes`` holds for all of them
# together; ``--max-tunnels`` is divided among them.

_UNBOUNDED: Final = 1 << 62


class RefusalLines:
    """Writes refusals as they happen; a reader that is gone or slow costs lines, not traffic."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def happened(self, grant: EgressGrant, event: EgressEvent) -> None:
        if isinstance(event, Refused):
            line = {"grant": grant.grant_id, "call": grant.call, **msgspec.to_builtins(event)}
            try:
                os.write(self._descriptor, json.dumps(line).encode() + b"\n")
            except OSError:
                return


def main(argv: Sequence[str] | None = None) -> None:
    options = _parse(argv)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(options))
    except PalyraError as error:
        sys.exit(error.diagnostics())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed. The proxy uses no transports, whose half-close uvloop gets wrong."""
    if os.environ.get("PALYRA_EGRESS_LOOP") == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="palyra-egress", description=__doc__)
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="ADDRESS:PORT", help="SOCKS5 and HTTP proxy")
    parser.add_argument("--allow", action="append", default=[], metavar="HOST[:PORT]")
    parser.add_argument("--private-target", action="append", default=[], metavar="HOST[:PORT]")
    parser.add_argument("--static", action="append", default=[], metavar="NAME=ADDRESS[,ADDRESS]")
    parser.add_argument("--upstream", metavar="http://HOST:PORT")
    parser.add_argument("--max-bytes", type=int, help="what all connections may move together; else without end")
    parser.add_argument("--max-tunnels", type=int, default=MAX_TUNNELS)
    parser.add_argument("--idle-seconds", type=float, default=ProxyLimits().idle_seconds)
    parser.add_argument("--processes", type=_processes, default=1, help=f"share the address, at most {MAX_PROCESSES}")
    parser.add_argument("--sharing", action="store_true", help="listen where others of these listen")
    parser.add_argument("--budget-file", type=int, metavar="DESCRIPTOR", help="the budget that those others share")
    parser.add_argument("--until-input-ends", action="store_true", help="end with standard input")
    words = list(sys.argv[1:] if argv is None else argv)
    return parser.parse_args(words, argparse.Namespace(words=words))


def _processes(text: str) -> int:
    count = int(text)
    if not 1 <= count <= MAX_PROCESSES:
        raise argparse.ArgumentTypeError(f"{count} is not between 1 and {MAX_PROCESSES}")
    return count


async def _serve(options: argparse.Namespace) -> None:
    # Each process has at least one connection, and all together no more than were given.
    options.processes = min(options.processes, max(1, options.max_tunnels))
    max_bytes = _UNBOUNDED if options.max_bytes is None else options.max_bytes
    shared = _shared_budget(options, max_bytes)
    room = tunnels_within(raise_descriptor_limit())
    limits = ProxyLimits(max_tunnels=min(ProxyLimits().max_tunnels, room), idle_seconds=options.idle_seconds)
    resolver = SystemResolver(_static_hosts(options.static))
    proxy = EgressProxy(
        EgressProxyPolicyService(OwnAddresses()),
        resolver,
        RefusalLines(sys.stderr.fileno()),
        limits=limits,
        upstream=Upstream.parse(options.upstream) if options.upstream else None,
    )
    grant = EgressGrant(
        grant_id="process",
        principal="",
        run="",
        call="",
        tool="",
        rules=tuple(map(HostRule.parse, options.allow)),
        private_targets=tuple(map(HostRule.parse, options.private_target)),
        max_bytes=max_bytes,
        max_tunnels=options.max_tunnels // options.processes,
    )
    listening = _listen(options.listen, sharing=options.sharing or options.processes > 1)
    host, port = listening.getsockname()[:2]
    budget = None if shared is None else LeasedBudget(shared)
    proxy.open_listener(grant, [ListeningSocket(kind="proxy", socket=listening)], budget=budget)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    if options.until_input_ends:
        loop.add_reader(sys.stdin.fileno(), stopped.set)
    with _others(options, listening, shared) as others:
        _say({"address": host, "port": port, "pid": os.getpid(), "max_tunnels": limits.max_tunnels})
        # What was imported and built stays: the collector need not look at it again.
        gc.freeze()
        await stopped.wait()
    counts = [msgspec.to_builtins(proxy.stats()), *others]
    _say({name: sum(each[name] for each in counts) for name in counts[0]})
    proxy.close()
    resolver.close()


def _shared_budget(options: argparse.Namespace, max_bytes: int) -> BudgetFile | None:
    if options.budget_file is not None:
        return BudgetFile(max_bytes, options.budget_file)
    if options.processes > 1 and options.max_bytes is not None:
        return BudgetFile.create(max_bytes)
    return None


@contextlib.contextmanager
def _others(
    options: argparse.Namespace, listening: socket.socket, shared: BudgetFile | None
) -> Iterator[list[dict[str, int]]]:
    """The other processes at the same address. Their input is ours to end, so none outlives this one.

    At the end the list has what each of them counted.
    """
    host, port = listening.getsockname()[:2]
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    words = [*options.words, "--listen", where, "--sharing", "--processes", "1", "--until-input-ends"]
    words += ["--max-tunnels", str(options.max_tunnels // options.processes)]
    inherited = []
    if shared is not None:
        words += ["--budget-file", str(shared.descriptor)]
        inherited.append(shared.descriptor)
    counts: list[dict[str, int]] = []
    with contextlib.ExitStack() as children:
        running: list[subprocess.Popen[bytes]] = []
        for _ in range(options.processes - 1):
            command = [sys.executable, "-m", "palyra.egress.proxy.standalone_main", *words]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=inherited)
            running.append(children.enter_context(child))
        for child in running:
            assert child.stdout is not None
            child.stdout.readline()
        yield counts
        for child in running:
            last, _ = child.communicate()
            # One that was killed has nothing to say.
            counts.extend(json.loads(line) for line in last.splitlines()[-1:])


def _say(line: Mapping[str, Any]) -> None:
    # Whoever started this may be gone before the last line.
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), json.dumps(line).encode() + b"\n")


def _listen(where: str, *, sharing: bool) -> socket.socket:
    host, _, port = where.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sharing:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind((host.strip("[]"), int(port)))
    sock.listen(LISTEN_BACKLOG)
    return sock


def _static_hosts(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    found = {}
    for text in texts:
        name, _, addresses = text.partition("=")
        found[Target.of(name, 1, scheme="tcp").host] = tuple(addresses.split(","))
    return found


if __name__ == "__main__":
    main()
