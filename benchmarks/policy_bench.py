"""Decisions over 10 and 1,000 exact-scope policies, against the same policies as one parsed set, alternately."""

import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks import bars
from benchmarks.bar import Bar
from palyra.ids import Principal
from palyra.policy.bundle import Bundle
from palyra.policy.cedar import CedarEngine
from palyra.policy.decision import Outcome
from palyra.policy.live_policy import load_bundle
from palyra.policy.request import EntityDirectory, PolicyRequest, tool_request

ROUNDS = 1_500
WARM_UP = 50
# Decisions in a row beside the whole set: evaluating a thousand policies between two of ours would empty the
# processor's caches, and a daemon has one engine. A row without a bar has them one by one.
TURN = 25
FEW, MANY = 10, 1_000
# A file has an upper bound in bytes.
POLICIES_PER_FILE = 5_000

_DIRECTORY = EntityDirectory.from_lists(principals=("agent:*",), tools=("echo",), channels=("cli",))


def engine_of(count: int, *, sliced: bool = True) -> CedarEngine:
    """Build the baseline and ``count`` policies, each for one agent and one tool."""
    lines = [
        f'@id("p{n}") permit (principal == Agent::"a{n}", action == Action::"tool.execute", resource == Tool::"t{n}")'
        f" when {{ context.argument_bytes < {n + 1000} }};"
        for n in range(count)
    ]
    files = [
        (f"bench{start}.cedar", "\n".join(lines[start : start + POLICIES_PER_FILE]))
        for start in range(0, count, POLICIES_PER_FILE)
    ]
    shipped = load_bundle(None, _DIRECTORY)
    bundle = Bundle(schema=shipped.schema, files=(*shipped.files, *files), directory=_DIRECTORY)
    return CedarEngine(bundle, sliced=sliced)


def request_of(agent: int, tool: str, run: int, size: int = 100) -> PolicyRequest:
    return tool_request(
        _DIRECTORY.principal(Principal.parse(f"agent:a{agent}")),
        _DIRECTORY.tool(tool, frozenset(), False, "builtin"),
        _DIRECTORY.channel("cli"),
        workspace="/workspace",
        run=f"run-{run}",
        argument_bytes=size,
        paths=("src/main.py",),
    )


def _microseconds(samples: list[float]) -> tuple[float, float]:
    ordered = sorted(samples)
    return statistics.median(ordered) * 1e6, ordered[int(len(ordered) * 0.99)] * 1e6


def _timed(decide: Callable[[PolicyRequest], Any], request: PolicyRequest) -> float:
    begun = time.perf_counter()
    decide(request)
    return time.perf_counter() - begun


def _compare(
    name: str,
    ours: CedarEngine,
    peer: str,
    theirs: CedarEngine,
    bar: Bar | None,
    turn: int = 1,
) -> dict[str, Any]:
    """Compare decisions for five agents that have policies of their own, ``turn`` decisions in a row."""
    requests = [request_of(n % 5, f"t{n % 5}", n, -n) for n in range(ROUNDS + WARM_UP)]
    for engine in (ours, theirs):
        for request in requests[:WARM_UP]:
            if engine.decide(request).outcome is not Outcome.ALLOW:
                raise RuntimeError("the benchmark measures allowed requests")
    mine, other = [], []
    for start in range(WARM_UP, len(requests), turn):
        batch = requests[start : start + turn]
        mine += [_timed(ours.decide, request) for request in batch]
        other += [_timed(theirs.decide, request) for request in batch]
    ours_p50, ours_p99 = _microseconds(mine)
    peer_p50, peer_p99 = _microseconds(other)
    return _row(name, ours_p50, ours_p99, peer, peer_p50, peer_p99, bar)


def _row(
    name: str,
    ours_p50: float,
    ours_p99: float,
    peer: str,
    peer_p50: float | None,
    peer_p99: float | None,
    bar: Bar | None,
) -> dict[str, Any]:
    return {
        "name": name,
        "ours_p50": ours_p50,
        "ours_p99": ours_p99,
        "peer": peer,
        "peer_p50": peer_p50,
        "peer_p99": peer_p99,
        "ratio": None if peer_p50 is None else ours_p50 / peer_p50,
        "samples": ROUNDS,
        "bar": bar,
        "unit": "us per decision",
    }


def _alone(name: str, engine: CedarEngine, request_for: Callable[[int], PolicyRequest]) -> dict[str, Any]:
    samples = [_timed(engine.decide, request_for(n)) for n in range(ROUNDS)]
    p50, p99 = _microseconds(samples)
    return _row(name, p50, p99, "none: information", None, None, None)


def run() -> list[dict[str, Any]]:
    few, many, whole = engine_of(FEW), engine_of(MANY), engine_of(MANY, sliced=False)
    return [
        _compare(
            f"policy decision, {MANY:,} exact policies",
            many,
            f"the same with {FEW}",
            few,
            bars.POLICY_MANY,
        ),
        _compare(
            f"policy decision, {MANY:,} policies, sliced, {TURN} in a row each",
            many,
            "one parsed set of all",
            whole,
            bars.POLICY_SLICED,
            TURN,
        ),
        _compare("the same, one by one", many, "one parsed set of all", whole, None),
        _alone("policy denial, with the grant that lifts it", many, lambda n: request_of(0, "unknown", n)),
    ]
