"""Drops results of ended calls: those that are too old, then the oldest of the principal that holds the most.

The arguments of decided requests for approval count as results do. Records, digests and attestations stay, and so does
the journal. One principal's flood costs no other its results.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from palyra.clock import MS_PER_SECOND, Clock
from palyra.errors import Unavailable
from palyra.limits import MIB
from palyra.pipeline.store.result_tables import (
    Holding,
    KeptResult,
    drop_results,
    list_holdings,
    list_oldest_results,
    read_reduced,
)
from palyra.store.port import Store

log = logging.getLogger("palyra.gateway")

# How soon results beyond the bound are dropped. A flood may exceed it for this long.
SWEEP_EVERY_SECONDS: Final = 2.0
# What one transaction drops, so that the commits of calls do not wait for it: a result is read and its pages freed.
MAX_DROPPED_AT_ONCE: Final = 32
MAX_DROPPED_BYTES_AT_ONCE: Final = 4 * MIB


class ResultBounds(msgspec.Struct, frozen=True, kw_only=True):
    max_age_ms: int
    max_bytes: int


class Excess(msgspec.Struct, frozen=True, kw_only=True):
    """Results of one principal that are dropped together, oldest first."""

    results: list[KeptResult]
    because: str


def choose_holder(holdings: Sequence[Holding], max_bytes: int) -> tuple[str, int] | None:
    """Return the principal that holds the most and how many bytes it has to give up, if all hold too much together.

    It gives up no more than makes it as large as the next one, which then is the largest as well.
    """
    over = sum(each.bytes for each in holdings) - max_bytes
    if over <= 0:
        return None
    largest, *others = sorted(holdings, key=lambda each: each.bytes, reverse=True)
    ahead = largest.bytes - (others[0].bytes if others else 0)
    return largest.principal, min(over, max(ahead, 1))


def find_excess(store: Store, bounds: ResultBounds, now_ms: int) -> Excess | None:
    """Find the next results to drop, as many as one transaction takes."""
    holdings = list_holdings(store)
    for each in holdings:
        old = list_oldest_results(
            store, each.principal, before_ms=max(0, now_ms - bounds.max_age_ms), limit=MAX_DROPPED_AT_ONCE
        )
        if old:
            return Excess(results=take_bytes(old, MAX_DROPPED_BYTES_AT_ONCE), because="age")
    chosen = choose_holder(holdings, bounds.max_bytes)
    if chosen is None:
        return None
    principal, too_much = chosen
    oldest = list_oldest_results(store, principal, limit=MAX_DROPPED_AT_ONCE)
    return Excess(results=take_bytes(oldest, min(too_much, MAX_DROPPED_BYTES_AT_ONCE)), because="size")


def take_bytes(results: Sequence[KeptResult], wanted: int) -> list[KeptResult]:
    """Take the first results that have ``wanted`` bytes together, or all of them."""
    taken: list[KeptResult] = []
    size = 0
    for each in results:
        if size >= wanted:
            break
        taken.append(each)
        size += each.bytes
    return taken


async def drop_excess(store: Store, bounds: ResultBounds, now_ms: int, *, actor: str) -> bool:
    """Drop the next results that are too many. Return whether there were any."""
    excess = await asyncio.to_thread(find_excess, store, bounds, now_ms)
    if excess is None:
        return False
    kept = excess.results
    reduced = await asyncio.to_thread(read_reduced, store, kept, now_ms)
    await store.transact(lambda tx: drop_results(tx, kept, reduced, because=excess.because, actor=actor))
    return True


async def bound_results(store: Store, bounds: ResultBounds, clock: Clock, *, actor: str) -> None:
    """Keep the results within their bounds. Ends only by being cancelled."""
    while True:
        try:
            while await drop_excess(store, bounds, clock.now_ms(), actor=actor):
                pass
        except Unavailable as problem:
            # The disk is full, or another process holds the database: no fault of this program.
            log.warning("old results could not be dropped and will be tried again: %s", problem.message)
        except Exception:
            log.exception("old results could not be dropped; will try again")
        await asyncio.sleep(SWEEP_EVERY_SECONDS)


def compute_bounds(results_days: int, results_bytes: int) -> ResultBounds:
    return ResultBounds(max_age_ms=results_days * 86_400 * MS_PER_SECOND, max_bytes=results_bytes)
