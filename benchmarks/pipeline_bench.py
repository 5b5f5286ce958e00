"""The cost that the pipeline adds to a call that does nothing: decision, budget, a durable record, attestation."""

import asyncio
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import bars
from benchmarks.bar import Bar
from palyra.config.state_dir import StateDir
from palyra.daemon.gateway_wiring import Gateway, running_gateway
from palyra.daemon.settings import Settings
from palyra.ids import Principal, RunId
from palyra.pipeline.domain.call import CallRequest, ToolRequestContext, build_policy_request
from palyra.pipeline.domain.spec import AccessedResources
from palyra.pipeline.intake import accept_arguments
from palyra.policy.decision import Decision
from palyra.signing.tool_attestation import ToolAttestation, attest

SAMPLES = 400
CALLERS = 32
CALLS_PER_CALLER = 40


def run() -> list[dict[str, Any]]:
    import uvloop

    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[dict[str, Any]]:
    settings = msgspec.convert({"budget": {"calls": 1_000_000, "wall_ms": 10**12}}, Settings)
    async with running_gateway(settings, StateDir.open(folder / "state"), folder / "policies") as gateway:
        run_id = RunId.new()
        request = _request(run_id)
        for _ in range(50):
            await gateway.broker.call(request)
        parts = _BareCalls(gateway, folder / "bare.db")
        ours: list[float] = []
        bare: list[float] = []
        for _ in range(SAMPLES):
            since = time.perf_counter()
            await gateway.broker.call(request)
            ours.append(time.perf_counter() - since)
            since = time.perf_counter()
            await parts.one()
            bare.append(time.perf_counter() - since)
        since = time.perf_counter()
        await asyncio.gather(*(_caller(gateway, request) for _ in range(CALLERS)))
        rate = CALLERS * CALLS_PER_CALLER / (time.perf_counter() - since)
        parts.close()
    return [
        _row("echo through the pipeline, one caller", ours, "its bare parts in sequence", bare, bars.PIPELINE_ONE),
        {
            "name": f"echo through the pipeline, {CALLERS} callers",
            "ours_p50": rate,
            "ours_p99": None,
            "peer": "-",
            "peer_p50": None,
            "peer_p99": None,
            "ratio": None,
            "samples": CALLERS * CALLS_PER_CALLER,
            "bar": bars.PIPELINE_RATE,
            "unit": "calls/s",
        },
    ]


def _request(run_id: RunId) -> CallRequest:
    return CallRequest(
        tool="echo",
        arguments='{"text":"hi"}',
        principal=Principal.parse("agent:bench"),
        actor="user:operator",
        channel="cli",
        run_id=run_id,
    )


async def _caller(gateway: Gateway, request: CallRequest) -> None:
    for _ in range(CALLS_PER_CALLER):
        await gateway.broker.call(request)


class _BareCalls:
    """Each thing the pipeline must do, done by hand: parse, check, decide, commit the start, sign, commit the end.

    Both commits are durable; they have three rows and one."""

    def __init__(self, gateway: Gateway, database: Path) -> None:
        self._gateway = gateway
        self._db = sqlite3.connect(database, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)")
        self._entry = gateway.catalog.entry("echo")
        self._signer = gateway.broker._signer

    async def one(self) -> None:
        arguments = accept_arguments(self._entry.spec, self._entry.input_check, '{"text":"hi"}')
        config, principal = self._gateway.broker.config, Principal.parse("agent:bench")
        context = ToolRequestContext(
            principal=principal,
            actor="user:operator",
            channel="cli",
            run="r",
            workspace=config.workspaces.of(principal),
        )
        question = build_policy_request(config, context, self._entry.spec, arguments, AccessedResources())
        decision = self._gateway.policy.decide(question)
        await asyncio.to_thread(self._commit, 3)
        self._sign(decision, arguments.digest)
        await asyncio.to_thread(self._commit, 1)

    def _commit(self, rows: int) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        for _ in range(rows):
            self._db.execute("INSERT INTO t (body) VALUES (?)", (b"x" * 700,))
        self._db.execute("COMMIT")

    def _sign(self, decision: Decision, digest: str) -> None:
        attest(
            ToolAttestation(
                call_id="c",
                run_id="r",
                principal="agent:bench",
                tool="echo",
                argument_digest=digest,
                decision=decision.outcome.value,
                policies=decision.policies,
                bundle_digest=decision.bundle_digest,
                approval_id="",
                executor="builtin",
                receipt=(),
                outcome="succeeded",
                output_digest=digest,
                started_ms=0,
                ended_ms=0,
            ),
            (self._signer,),
        )

    def close(self) -> None:
        self._db.close()


def _row(name: str, ours: list[float], peer_name: str, peer: list[float], bar: Bar) -> dict[str, Any]:
    def at(values: list[float], share: float) -> float:
        return sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1000

    return {
        "name": name,
        "ours_p50": statistics.median(ours) * 1000,
        "ours_p99": at(ours, 0.99),
        "peer": peer_name,
        "peer_p50": statistics.median(peer) * 1000,
        "peer_p99": at(peer, 0.99),
        "ratio": statistics.median(ours) / statistics.median(peer),
        "samples": len(ours),
        "bar": bar,
        "unit": "ms",
    }
