"""A daemon's side of the fleet in a process of its own, and a thousand workers that are connected to it for real: each
with its certificate, its stream over mutual TLS, its attestation and its heartbeats. The workers run nothing; they
sign and settle, as real ones do.

Leases are measured against an in-memory queue behind the same listener: the same messages on the same kind of stream,
nothing checked and nothing written down. Both are asked alternately.
"""

import asyncio
import gc
import heapq
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc

from benchmarks import bars

WORKERS = int(os.environ.get("PALYRA_BENCH_WORKERS", "1000"))
# Connected before memory is looked at for the first time: what the first ones cost, the others do not cost again.
WARM = max(1, WORKERS // 10)
# Streams of the peer: as many for its work, and more of them for what a bare connection costs.
BARE_WORKERS = 64
BARE_IDLE = max(1, WORKERS // 5)
CALLERS = 64
ROUNDS = 5
LEASES_PER_ROUND = 1_920
CONNECTING_AT_ONCE = 16
IDLE_SECONDS = 10.0
BAR_PER_SECOND = 500.0


class Queue:
    """The peer: offers in a queue of this process, answers to whoever waits."""

    def __init__(self) -> None:
        self.offers: asyncio.Queue[tuple[Any, asyncio.Future[Any]]] = asyncio.Queue()

    async def Work(self, _messages: Any, context: Any) -> None:
        from palyra.wire.worker.v1 import worker_pb2 as wire

        await context.read()
        while True:
            offer, answer = await self.offers.get()
            await context.write(wire.DaemonBatch(commands=[wire.DaemonCommand(lease=offer)]))
            said = await context.read()
            if said is grpc.aio.EOF:
                return
            answer.set_result(said)

    def __getattr__(self, _name: str) -> Any:
        return None


class Served:
    """The process that is measured."""

    def __init__(self, folder: Path) -> None:
        from fakes.fleet_server_harness import SETTINGS, FleetServerHarness
        from palyra.fleet.domain.policy import WorkerFleetSettings

        settings = WorkerFleetSettings(
            require_egress_binding=False, build_digests=SETTINGS.build_digests, max_workers=max(WORKERS, 1)
        )
        self.harness = FleetServerHarness(folder, settings)
        self.queue = Queue()
        self.made = 0

    async def open(self) -> dict[str, Any]:
        from functools import partial

        from palyra.daemon.process_setup import settle_in
        from palyra.devicelink.server.listener import DeviceListener
        from palyra.wire.worker.v1.worker_pb2_grpc import add_WorkerServiceServicer_to_server

        await self.harness.start()
        identities = self.harness.nodes.identities
        self.bare = DeviceListener(identities, "127.0.0.1")
        bare_port = await self.bare.start([partial(add_WorkerServiceServicer_to_server, self.queue)], [0])
        devices = await self._paired()
        settle_in()
        return {
            "port": self.harness.port,
            "bare": bare_port,
            "authorities": identities.ca_bundle_pem().decode(),
            "devices": devices,
        }

    async def _paired(self) -> list[dict[str, str]]:
        """As finished pairings leave them; the records are written together."""
        from fakes.identity_harness import ACTOR, DeviceKey
        from fakes.node_state_harness import node_record
        from palyra.identity.device import DeviceId, DeviceKind

        nodes = self.harness.nodes
        devices, records = [], []
        for _ in range(WORKERS):
            key, device_id = DeviceKey(), DeviceId.new()
            issued = await nodes.identities.issue(DeviceKind.WORKER, device_id, key.csr(), actor=ACTOR)
            records.append(node_record(id=device_id, kind=DeviceKind.WORKER, name="simulated"))
            devices.append(
                {"id": str(device_id), "key": key.pem().decode(), "certificate": issued.certificate_pem.decode()}
            )
        await nodes.state.transact(lambda unit: [unit.nodes.put(record) for record in records])
        return devices

    async def ask(self, words: list[str]) -> dict[str, Any]:
        match words:
            case ["memory"]:
                gc.collect()
                from fakes.processes import resident_bytes

                return {"bytes": resident_bytes(os.getpid()), "sessions": len(self.harness.parts.sessions)}
            case ["cpu"]:
                return {"seconds": time.process_time()}
            case ["leases"]:
                return await self._measured(self._lease)
            case _:
                return await self._measured(self._queued)

    async def _measured(self, one: Any) -> dict[str, Any]:
        waits: list[float] = []

        async def caller() -> None:
            for _ in range(LEASES_PER_ROUND // CALLERS):
                begun = time.perf_counter()
                await one()
                waits.append(time.perf_counter() - begun)

        begun, spent = time.perf_counter(), time.process_time()
        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        return {
            "per_second": len(waits) / (time.perf_counter() - begun),
            "cpu_ms": (time.process_time() - spent) / len(waits) * 1e3,
            "waits": waits,
        }

    async def _lease(self) -> None:
        self.made += 1
        ask = self.harness.ask(call_id=f"01CALL{self.made}", run_id=f"01RUN{self.made % CALLERS}")
        report = await self.harness.parts.calls().run(ask)
        assert report.settled.result == {"text": "hi"}

    async def _queued(self) -> None:
        from palyra.wire.worker.v1 import worker_pb2 as wire

        ask = self.harness.ask()
        offer = wire.LeaseOffer(
            lease_id="01M7K37N11496WEGWZ693472YM",
            fence=1,
            run_id=ask.run_id,
            call_id=ask.call_id,
            principal=ask.principal,
            tool=ask.tool,
            arguments_json=ask.arguments_json,
            argument_digest=ask.argument_digest,
            tier=ask.tier,
            nonce="00" * 32,
            timeout_ms=60_000,
            max_output_bytes=10_000,
        )
        answer = asyncio.get_running_loop().create_future()
        await self.queue.offers.put((offer, answer))
        await answer

    async def close(self) -> None:
        await self.bare.stop(None)
        await self.harness.stop()


async def serve(folder: Path) -> None:
    """Answers each line of its input with a line, until it ends."""
    served = Served(folder)
    loop = asyncio.get_running_loop()
    print(json.dumps(await served.open()), flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await served.ask(line.split())), flush=True)
    await served.close()


class Simulated:
    """One worker: connected, attested, heard of now and then, and quick."""

    def __init__(self, setup: dict[str, Any], device: dict[str, str], which: str) -> None:
        from fakes.fleet_server_harness import HandWorker
        from palyra.clock import SystemClock
        from palyra.wire.worker.v1.worker_pb2_grpc import WorkerServiceStub

        key = SimpleNamespace(pem=device["key"].encode)
        harness: Any = SimpleNamespace(clock=SystemClock())
        self.hand = HandWorker(harness, SimpleNamespace(device_id=device["id"], key=key))  # type: ignore[arg-type]
        credentials = grpc.ssl_channel_credentials(
            setup["authorities"].encode(), device["key"].encode(), device["certificate"].encode()
        )
        options = (("grpc.ssl_target_name_override", "palyra"), ("grpc.use_local_subchannel_pool", 1))
        self.channel = grpc.aio.secure_channel(f"127.0.0.1:{setup[which]}", credentials, options=options)
        stub: Any = WorkerServiceStub(self.channel)  # type: ignore[no-untyped-call]
        self.hand.call = stub.Work()
        self.lock = asyncio.Lock()
        self.beat_at = 0.0
        self.reading: asyncio.Task[None] | None = None

    async def say(self, *events: dict[str, Any]) -> None:
        from palyra.wire.worker.v1 import worker_pb2 as wire

        async with self.lock:
            self.hand.sequence += 1
            batch = wire.WorkerBatch(
                device_id=self.hand.worker_id,
                sequence=self.hand.sequence,
                events=[wire.WorkerEvent(**event) for event in events],
            )
            await self.hand.call.write(batch)

    def beat(self) -> dict[str, Any]:
        from palyra.wire.worker.v1 import worker_pb2 as wire

        self.beat_at = time.monotonic()
        return {"heartbeat": wire.Heartbeat(slots=4)}

    async def greet(self, *, attested: bool) -> None:
        from palyra.wire.worker.v1 import worker_pb2 as wire

        await self.say({"hello": wire.Hello(protocol_version=1, display_name="simulated", boot_id="1", slots=4)})
        if attested:
            challenge = await self.hand.receive("challenge")
            answer = await self.hand.attest(challenge.nonce)
            assert answer.code == "", answer
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while (batch := await self.hand.call.read()) is not grpc.aio.EOF:
            for command in batch.commands:
                kind = command.WhichOneof("command")
                if kind == "lease":
                    # As a worker does: its heartbeat goes with what it reports.
                    await self.say({"settlement": self.hand.settlement(command.lease)}, self.beat())
                elif kind == "challenge":
                    await self.say({"attestation": self.hand.attestation(command.challenge.nonce)})

    async def close(self) -> None:
        if self.reading is not None:
            self.reading.cancel()
            await asyncio.wait([self.reading])
        self.hand.call.cancel()
        await self.channel.close()


async def connect(setup: dict[str, Any], devices: list[dict[str, str]], which: str) -> list[Simulated]:
    waiting = asyncio.Semaphore(CONNECTING_AT_ONCE)

    async def one(device: dict[str, str]) -> Simulated:
        async with waiting:
            worker = Simulated(setup, device, which)
            await worker.greet(attested=which == "port")
            return worker

    return list(await asyncio.gather(*map(one, devices)))


@asynccontextmanager
async def heartbeats(workers: list[Simulated]) -> AsyncIterator[None]:
    """Each as often as a daemon asks for by default, counted from the one before: spread evenly at first."""
    from palyra.fleet.domain.policy import WorkerFleetPolicy

    interval = WorkerFleetPolicy().heartbeat_interval_ms / 1000
    for number, worker in enumerate(workers):
        worker.beat_at = time.monotonic() - interval * number / len(workers)

    async def beat() -> None:
        waiting = [(worker.beat_at + interval, number) for number, worker in enumerate(workers)]
        heapq.heapify(waiting)
        while True:
            due, number = waiting[0]
            worker = workers[number]
            if worker.beat_at + interval > due:
                heapq.heapreplace(waiting, (worker.beat_at + interval, number))
                continue
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if worker.beat_at + interval <= due:
                await worker.say(worker.beat())

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.wait([beating])


class Remote:
    """The measured process, as a conversation."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None and process.stdout is not None
        self._into, self._out = process.stdin, process.stdout

    async def receive(self) -> dict[str, Any]:
        line = await asyncio.get_running_loop().run_in_executor(None, self._out.readline)
        setup: dict[str, Any] = json.loads(line)
        return setup

    async def ask(self, word: str) -> dict[str, Any]:
        self._into.write(f"{word}\n")
        self._into.flush()
        return await self.receive()


async def measure(remote: Remote) -> list[dict[str, Any]]:
    from palyra.daemon.process_setup import settle_in

    setup = await remote.receive()
    # A thousand workers are a thousand processes elsewhere. Here they share one, whose threads must not be what waits.
    settle_in()
    devices = setup["devices"]
    workers = await connect(setup, devices[:WARM], "port")
    before = await remote.ask("memory")
    begun = time.perf_counter()
    workers += await connect(setup, devices[WARM:], "port")
    connecting = time.perf_counter() - begun
    async with heartbeats(workers):
        await asyncio.sleep(IDLE_SECONDS / 2)
        after = await remote.ask("memory")
        assert after["sessions"] == WORKERS, after
        each = (after["bytes"] - before["bytes"]) / (WORKERS - WARM)
        cpu = await remote.ask("cpu")
        await asyncio.sleep(IDLE_SECONDS)
        idle = ((await remote.ask("cpu"))["seconds"] - cpu["seconds"]) / IDLE_SECONDS
        bare = await connect(setup, devices[:BARE_WORKERS], "bare")
        before = await remote.ask("memory")
        bare += await connect(setup, devices[:BARE_IDLE], "bare")
        each_bare = ((await remote.ask("memory"))["bytes"] - before["bytes"]) / BARE_IDLE
        ours: list[dict[str, Any]] = []
        theirs: list[dict[str, Any]] = []
        for _ in range(ROUNDS):
            ours.append(await remote.ask("leases"))
            theirs.append(await remote.ask("queue"))
        assert (await remote.ask("memory"))["sessions"] == WORKERS, "all are still there"
    for worker in (*workers, *bare):
        await worker.close()
    print(
        f"{WORKERS} workers: {(WORKERS - WARM) / connecting:.0f} connections a second, {each / 1024:.1f} KiB each, "
        f"{each_bare / 1024:.1f} KiB of that for any stream over TLS, {idle:.1%} of a core for their heartbeats",
        file=sys.stderr,
    )
    spent, bare_spent = (statistics.median(one["cpu_ms"] for one in each) for each in (ours, theirs))
    print(f"the daemon's time for a lease: {spent:.2f} ms, {bare_spent:.2f} ms with the queue", file=sys.stderr)
    return [_rate(ours), _against_queue(ours, theirs), _memory(each, each_bare), _idle(idle)]


def _rate(ours: list[dict[str, Any]]) -> dict[str, Any]:
    rates = [one["per_second"] for one in ours]
    return _row(
        f"leases over {WORKERS} streams, {CALLERS} callers",
        statistics.median(rates),
        min(rates),
        BAR_PER_SECOND,
        ratio=statistics.median(rates) / BAR_PER_SECOND,
        bar=bars.FLEET_LEASES,
        unit="leases a second",
        samples=sum(len(one["waits"]) for one in ours),
    )


def _against_queue(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> dict[str, Any]:
    mine = [1e3 / one["per_second"] for one in ours]
    bare = [1e3 / one["per_second"] for one in theirs]
    row = _row(
        f"lease granted and settled over {WORKERS} streams",
        statistics.median(mine),
        max(mine),
        statistics.median(bare),
        ratio=statistics.median(mine) / statistics.median(bare),
        bar=None,
        unit="ms per lease",
        samples=sum(len(one["waits"]) for one in ours),
    )
    return {**row, "peer": "an in-memory queue, same messages", "peer_p99": max(bare)}


def _memory(each: float, each_bare: float) -> dict[str, Any]:
    """gRPC alone takes more for a connection over TLS than the bar, and no setting of its changes that: 36 KiB without
    TLS, 41 more with it (two buffers of 17 KiB, two of 8) once its record buffer is as small as it can be."""
    row = _row(
        "memory of an idle worker, with its connection",
        each / 1024,
        each / 1024,
        each_bare / 1024,
        ratio=each / each_bare,
        bar=bars.FLEET_MEMORY,
        unit="KiB",
        samples=WORKERS - WARM,
    )
    return {**row, "peer": "a bare stream over TLS"}


def _idle(share: float) -> dict[str, Any]:
    return _row(
        f"daemon's time for {WORKERS} idle workers",
        share * 100,
        share * 100,
        100.0,
        ratio=share,
        bar=None,
        unit="% of a core",
        samples=1,
    )


def _row(name: str, p50: float, worst: float, peer: float, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "ours_p50": p50,
        "ours_p99": worst,
        "peer": "the bar",
        "peer_p50": peer,
        "peer_p99": peer,
        **more,
    }


def run() -> list[dict[str, Any]]:
    import uvloop

    place = os.environ.get("PALYRA_BENCH_DIR")
    with (
        tempfile.TemporaryDirectory(dir=place) as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        words = [sys.executable, "-m", "perf.fleet_stream_bench", folder]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            try:
                return runner.run(measure(Remote(process)))
            finally:
                process.stdin.close()


if __name__ == "__main__":
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Path(sys.argv[1])))
