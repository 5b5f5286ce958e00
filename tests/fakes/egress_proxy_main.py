"""Egress proxy as its own process, to measure it beside other proxies.

``python tests/fakes/egress_proxy_main.py --listen ADDRESS --allow HOST``. The first line on standard output names
its address; every refusal is a JSON line on standard error. SIGTERM, SIGINT or, with ``--until-input-ends``, the end of
standard input ends it.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import uvloop

from palyra.egress.domain.events import EgressEvent, Refused
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.domain.rules import HostRule
from palyra.egress.domain.target import Target
from palyra.egress.limits import MAX_TUNNELS, SPARE_DESCRIPTORS, ProxyLimits
from palyra.egress.proxy.dial import Upstream
from palyra.egress.proxy.resolver import OwnAddresses, SystemResolver
from palyra.egress.proxy.server import EgressProxy, ListeningSocket, raise_descriptor_limit
from palyra.errors import PalyraError

_UNBOUNDED: Final = 1 << 62
_BACKLOG: Final = 1024
_DESCRIPTORS_PER_TUNNEL: Final = 2


class RefusalLines:
    """Writer of refusals. A reader that is gone or slow loses lines, but does not stop traffic."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def observe(self, grant: EgressGrant, event: EgressEvent) -> None:
        if isinstance(event, Refused):
            line = {"grant": grant.grant_id, "call": grant.call, **msgspec.to_builtins(event)}
            try:
                os.write(self._descriptor, json.dumps(line).encode() + b"\n")
            except OSError:
                return


def main(argv: Sequence[str] | None = None) -> None:
    options = _parse(argv)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(options))
    except PalyraError as error:
        sys.exit(error.diagnostics())


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="palyra-egress", description=__doc__)
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="ADDRESS:PORT", help="SOCKS5 and HTTP proxy")
    parser.add_argument("--allow", action="append", default=[], metavar="HOST[:PORT]")
    parser.add_argument("--private-target", action="append", default=[], metavar="HOST[:PORT]")
    parser.add_argument("--static", action="append", default=[], metavar="NAME=ADDRESS[,ADDRESS]")
    parser.add_argument("--upstream", metavar="http://HOST:PORT")
    parser.add_argument("--max-bytes", type=int, help="bytes of all connections together; unbounded without it")
    parser.add_argument("--max-tunnels", type=int, default=MAX_TUNNELS)
    parser.add_argument("--idle-seconds", type=float, default=ProxyLimits().idle_seconds)
    parser.add_argument("--until-input-ends", action="store_true", help="end with standard input")
    return parser.parse_args(argv)


async def _serve(options: argparse.Namespace) -> None:
    room = (raise_descriptor_limit() - SPARE_DESCRIPTORS) // _DESCRIPTORS_PER_TUNNEL
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
        max_bytes=_UNBOUNDED if options.max_bytes is None else options.max_bytes,
        max_tunnels=options.max_tunnels,
    )
    listening = _listen(options.listen)
    host, port = listening.getsockname()[:2]
    listener = proxy.open_listener(grant, [ListeningSocket(kind="proxy", socket=listening)])
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    if options.until_input_ends:
        loop.add_reader(sys.stdin.fileno(), stopped.set)
    _say({"address": host, "port": port, "pid": os.getpid(), "max_tunnels": limits.max_tunnels})
    # Imported and built objects stay: the garbage collector need not visit them again.
    gc.freeze()
    await stopped.wait()
    _say(msgspec.to_builtins(listener.usage()))
    proxy.close()
    resolver.close()


def _say(line: Mapping[str, Any]) -> None:
    # The process that started this may be gone before the last line.
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), json.dumps(line).encode() + b"\n")


def _listen(where: str) -> socket.socket:
    host, _, port = where.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host.strip("[]"), int(port)))
    sock.listen(_BACKLOG)
    return sock


def _static_hosts(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    found = {}
    for text in texts:
        name, _, addresses = text.partition("=")
        found[Target.of(name, 1, scheme="tcp").host] = tuple(addresses.split(","))
    return found


if __name__ == "__main__":
    main()
