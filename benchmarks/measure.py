"""Two things measured in turn, so that a busy machine is busy for both, and the row that a table shows of them."""

import statistics
import time
from collections.abc import Callable

from benchmarks.bar import Bar, Row

WARM = 3


def alternately(
    ours: Callable[[], object], theirs: Callable[[], object], samples: int
) -> tuple[list[float], list[float]]:
    """Milliseconds of each."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(samples + WARM):
        for act, found in zip((ours, theirs), times, strict=True):
            since = time.perf_counter()
            act()
            if number >= WARM:
                found.append((time.perf_counter() - since) * 1_000)
    return times


def row(name: str, unit: str, ours: list[float], peer: str, theirs: list[float], bar: Bar | None) -> Row:
    mine, other = statistics.quantiles(ours, n=100), statistics.quantiles(theirs, n=100)
    return {
        "name": name,
        "unit": unit,
        "ours_p50": mine[49],
        "ours_p99": mine[98],
        "peer": peer,
        "peer_p50": other[49],
        "peer_p99": other[98],
        "ratio": mine[49] / other[49],
        "samples": len(ours),
        "bar": bar,
    }
