"""Journal entries about egress: written in the background, at the latest before the call ends."""

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from palyra.egress.domain.events import EgressEvent, Refused
from palyra.egress.domain.grant import EgressGrant
from palyra.errors import PalyraError
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.store.run_tables import return_budget
from palyra.store.event import NewEvent
from palyra.store.port import Store

if TYPE_CHECKING:
    from palyra.egress.metrics import EgressMetrics

log = logging.getLogger("palyra.egress")

# Entries of one call, separately for refusals and for others: a program that connects for ever fills neither memory nor
# the journal, and its refusals are still named after a thousand connections. The rest is counted.
MAX_ENTRIES_PER_GRANT = 1_000
# Past that limit the first entry of each kind is still written, for this many kinds: a flood of harmless connections
# hides neither another host nor another kind of refusal.
MAX_KINDS_PER_GRANT = 256
# Entries that wait for the disk, and entries of one transaction.
MAX_WAITING = 65_536
ENTRIES_PER_TRANSACTION = 256


class JournalObserver:
    """Writes events in a background task. ``observe`` never waits; ``flush`` waits until every event is written."""

    def __init__(self, store: Store, *, actor: str, metrics: "EgressMetrics | None" = None) -> None:
        self._store = store
        self._actor = actor
        self._metrics = metrics
        self._waiting: list[NewEvent] = []
        self._counts: Counter[tuple[str, bool]] = Counter()
        self._kinds: dict[str, set[str]] = {}
        self._dropped: dict[str, tuple[EgressGrant, int]] = {}
        self._writing: asyncio.Task[None] | None = None

    def observe(self, grant: EgressGrant, event: EgressEvent) -> None:
        if self._metrics is not None:
            self._metrics.count(event)
        kind = (grant.grant_id, isinstance(event, Refused))
        self._counts[kind] += 1
        is_first = self._is_first_of_its_kind(grant, event)
        if (self._counts[kind] > MAX_ENTRIES_PER_GRANT and not is_first) or len(self._waiting) >= MAX_WAITING:
            self._dropped[grant.grant_id] = (grant, self._dropped.get(grant.grant_id, (grant, 0))[1] + 1)
            return
        payload = msgspec.to_builtins(event)
        self._waiting.append(self._entry(grant, payload.pop("type"), payload))
        self._write_soon()

    async def flush(self) -> None:
        kind = "egress.entries_dropped"
        for grant, count in self._dropped.values():
            self._waiting.append(self._entry(grant, kind, {"count": count}))
        self._dropped.clear()
        if self._waiting:
            self._write_soon()
        while self._writing is not None:
            await asyncio.wait([self._writing])

    async def return_budget(self, grant: EgressGrant, amount: int) -> None:
        """Give the run back the bytes that its call was charged and its background program did not move."""
        bytes_ = BudgetKind.EGRESS_BYTES
        whose = {"call": grant.call, "principal": grant.principal, "actor": self._actor}
        await self._store.transact(lambda tx: return_budget(tx, grant.run, bytes_, amount, **whose), essential=True)

    def forget(self, grant_id: str) -> None:
        for refused in (False, True):
            self._counts.pop((grant_id, refused), None)
        self._kinds.pop(grant_id, None)

    def _is_first_of_its_kind(self, grant: EgressGrant, event: EgressEvent) -> bool:
        what = event.refusal.code if isinstance(event, Refused) else f"{type(event).__name__} {event.target.authority}"
        known = self._kinds.setdefault(grant.grant_id, set())
        if what in known or len(known) >= MAX_KINDS_PER_GRANT:
            return False
        known.add(what)
        return True

    def _write_soon(self) -> None:
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write(), name="egress journal")

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[:ENTRIES_PER_TRANSACTION]
                del self._waiting[:ENTRIES_PER_TRANSACTION]
                await self._store.transact(_appending(batch), essential=True)
        except PalyraError as error:
            log.error("egress events could not be recorded: %s", error)
        finally:
            self._writing = None

    def _entry(self, grant: EgressGrant, kind: str, payload: dict[str, Any]) -> NewEvent:
        return NewEvent(
            kind=kind,
            actor=self._actor,
            principal=grant.principal,
            run=grant.run,
            call=grant.call,
            payload={**payload, "tool": grant.tool},
        )


def _appending(batch: list[NewEvent]) -> Any:
    return lambda tx: [tx.append(event) for event in batch]
