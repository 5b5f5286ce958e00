"""What the checks on every message cost: our listener for devices and a bare grpcio one, same messages, same TLS.

Both run in one process under uvloop, the client in this one. The bare service answers every message with a fixed one
and looks at nothing. Asked alternately: a heartbeat and its answer on an open stream, and a unary call.
"""

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from benchmarks import bars

PEER = "bare grpcio, same TLS"
ROUNDS = 12
ROUNDS = 250


class Bare:
    """Answers and does nothing else."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def RegisterNode(self, _request: Any, _context: Any) -> Any:
        return self.answer

    async def StreamNodeEvents(self, _messages: Any, context: Any) -> None:
        from palyra.wire.node.v1 import node_pb2 as wire

        while (message := await context.read()) is not grpc.aio.EOF:
            await context.write(wire.NodeCommand(heartbeat_ack=wire.HeartbeatAck(sequence=message.sequence)))

    def __getattr__(self, _name: str) -> Any:
        return None


async def serve(folder: Path) -> None:
    """Prints what a client needs, then serves until it is ended."""
    from fakes.node_server_harness import open_harness
    from palyra.devicelink.server.listener import DeviceListener
    from palyra.wire.node.v1 import node_pb2 as wire
    from palyra.wire.node.v1.node_pb2_grpc import add_NodeServiceServicer_to_server

    async with open_harness(folder, heartbeat_timeout=3600) as harness:
        device = await harness.pair()
        answer = wire.RegisterNodeResponse(
            protocol_version=1,
            heartbeat_interval_ms=1000,
            max_result_bytes=4096,
            ca_bundle_pem=harness.identities.ca_bundle_pem(),
        )
        bare = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        add_NodeServiceServicer_to_server(Bare(answer), bare)
        certificate = harness.identities.server_certificate()
        credentials = grpc.ssl_server_credentials(
            [(certificate.key_pem.reveal().encode(), certificate.chain_pem)],
            root_certificates=harness.identities.ca_bundle_pem(),
            require_client_auth=True,
        )
        bare_port = bare.add_secure_port("127.0.0.1:0", credentials)
        await bare.start()
        assert isinstance(harness.listener, DeviceListener)
        server = {
            "ours": harness.port,
            "bare": bare_port,
            "device_id": device.device_id,
            "key": device.key.pem().decode(),
            "certificate": device.issued.certificate_pem.decode(),
            "authorities": harness.identities.ca_bundle_pem().decode(),
        }
        print(json.dumps(server), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await bare.stop(None)


def run() -> list[dict[str, Any]]:
    import uvloop

    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        words = [sys.executable, "-m", "perf.node_bench", folder]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None and server.stdin is not None
            try:
                return runner.run(measure(json.loads(server.stdout.readline())))
            finally:
                server.stdin.close()


async def measure(server: dict[str, Any]) -> list[dict[str, Any]]:
    async with line(server, "ours") as ours, line(server, "bare") as bare:
        return [
            await compare("heartbeat on a device's stream", ours[0], bare[0], bars.NODE_STREAM),
            await compare("unary call of a device", ours[1], bare[1], bars.NODE_UNARY),
        ]


Call = Callable[[], Awaitable[None]]


@contextlib.asynccontextmanager
async def line(server: dict[str, Any], which: str) -> AsyncIterator[tuple[Call, Call]]:
    """A heartbeat, and a unary call, on one connection."""
    from palyra.wire.node.v1 import node_pb2 as wire
    from palyra.wire.node.v1.node_pb2_grpc import NodeServiceStub

    credentials = grpc.ssl_channel_credentials(
        server["authorities"].encode(), server["key"].encode(), server["certificate"].encode()
    )
    options = (("grpc.ssl_target_name_override", "palyra"), ("grpc.use_local_subchannel_pool", 1))
    device_id = server["device_id"]
    async with grpc.aio.secure_channel(f"127.0.0.1:{server[which]}", credentials, options=options) as channel:
        stub: Any = NodeServiceStub(channel)
        registration = wire.RegisterNodeRequest(
            device_id=device_id,
            protocol_version=1,
            platform="linux",
            software_version="1",
            capabilities=[wire.Capability(name="echo"), wire.Capability(name="notify")],
        )

        async def register() -> None:
            await stub.RegisterNode(registration)

        await register()
        stream = stub.StreamNodeEvents()
        sequence = 0

        async def beat() -> None:
            nonlocal sequence
            sequence += 1
            await stream.write(wire.NodeEvent(device_id=device_id, sequence=sequence, heartbeat=wire.Heartbeat()))
            answer = await stream.read()
            assert answer.heartbeat_ack.sequence == sequence

        await beat()
        yield beat, register
        stream.cancel()


async def compare(name: str, ours: Call, bare: Call, bar: Any) -> dict[str, Any]:
    mine: list[float] = []
    theirs: list[float] = []
    ratios: list[float] = []
    for number in range(ROUNDS + 1):
        # Which goes first changes, so that neither has the warmer machine.
        order = [(ours, mine), (bare, theirs)]
        spans: dict[int, list[float]] = {}
        for ask, into in order if number % 2 else order[::-1]:
            spans[id(into)] = await _timed(ask)
        if number == 0:
            continue
        mine += spans[id(mine)]
        theirs += spans[id(theirs)]
        ratios.append(statistics.median(spans[id(mine)]) / statistics.median(spans[id(theirs)]))
    return {
        "name": name,
        "ours_p50": statistics.median(mine),
        "ours_p99": statistics.quantiles(mine, n=100)[98],
        "peer": PEER,
        "peer_p50": statistics.median(theirs),
        "peer_p99": statistics.quantiles(theirs, n=100)[98],
        "ratio": statistics.median(ratios),
        "samples": len(mine),
        "bar": bar,
        "unit": "us",
    }


async def _timed(ask: Call) -> list[float]:
    spans = []
    for _ in range(ROUNDS):
        since = time.perf_counter()
        await ask()
        spans.append((time.perf_counter() - since) * 1e6)
    return spans


if __name__ == "__main__":
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as own:
        own.run(partial(serve, Path(sys.argv[1]))())
