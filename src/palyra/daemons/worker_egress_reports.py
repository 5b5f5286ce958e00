"""What a worker's egress proxy tells the daemon about it: on disk before it is out, and until it is acknowledged."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final

from palyra.clock import Clock
from palyra.workers.egress import limits
from palyra.workers.egress.lease_grant import LeaseGrant
from palyra.workers.egress.spool import Spooled, ViolationSpool
from palyra.workers.egress.violation import Held, TellOnce, Violation

log = logging.getLogger("palyra.egress")
# Answers after which a report is not offered again: the daemon took it, or has it on record that it did not believe it.
FINAL_ANSWERS: Final = frozenset(("", "worker.foreign_egress", "worker.unknown"))


class ViolationReports:
    def __init__(self, spool: ViolationSpool, clock: Clock) -> None:
        self._spool = spool
        self._clock = clock
        self._told = TellOnce()
        self._news = asyncio.Event()
        self._again: set[int] = set()

    def hold(self, grant: LeaseGrant, held: Held) -> None:
        """Never waits. Each kind once for a lease."""
        lease_id = grant.lease_id
        if not self._told.is_new(lease_id, held):
            return
        violation = Violation(
            worker_id=grant.worker_id,
            lease_id=lease_id,
            code=held.code,
            host=held.host,
            port=held.port,
            seen_ms=self._clock.now_ms(),
        )
        if self._spool.append(violation, must=self._told.is_first(lease_id)) is None:
            log.error("the spool is full: %s of lease %s is not reported", held.code, lease_id)
            return
        log.warning("violation of lease %s: %s %s:%d", lease_id, held.code, held.host, held.port)
        self._news.set()

    def forget_all_but(self, lease_ids: frozenset[str]) -> None:
        self._told.keep_only(lease_ids)

    async def waiting(self) -> AsyncIterator[Spooled]:
        """Everything that is not acknowledged, and then whatever comes; for one connection."""
        offered: set[int] = set()
        while True:
            self._news.clear()
            offered -= self._again
            self._again.clear()
            fresh = [each for each in self._spool.waiting() if each.sequence not in offered]
            if fresh:
                await asyncio.to_thread(self._spool.sync)
            for each in fresh:
                offered.add(each.sequence)
                yield each
            offered &= {each.sequence for each in self._spool.waiting()}
            await self._news.wait()

    def answered(self, sequence: int, code: str) -> None:
        if code in FINAL_ANSWERS:
            if self._spool.acknowledge(sequence) and code:
                log.error("the daemon did not believe a report: %s", code)
            return
        log.warning("a report could not be taken (%s) and is offered again", code)
        asyncio.get_running_loop().call_later(limits.OFFERED_AGAIN_SECONDS, self._offer_again, sequence)

    def _offer_again(self, sequence: int) -> None:
        self._again.add(sequence)
        self._news.set()
