"""What is done for a call without effects while it computes.

Its first entries are made ready to be written, at the latest when it has computed, and written ahead if it is alone:
what has to be written in the end is less then. Once it has computed for a while it is written down as started: who
looks at the ledger sees it, and may stop it.
"""

import asyncio
from typing import Any, Final

from palyra.errors import PalyraError
from palyra.journal.event import NewEvent
from palyra.tools import sqlite_calls
from palyra.tools.asking import Asked
from palyra.tools.budget import BudgetKind
from palyra.tools.call_entries import entries_ready
from palyra.tools.ports import CallStore, HeadStart
from palyra.tools.record import CallRecord
from palyra.tools.sqlite_calls import Started

# A call without effects that ends sooner is written down once, when it has ended.
UNRECORDED_SECONDS: Final = 0.02


class LateStart:
    """Made in the task that computes. ``begun`` is there if that took long enough, else ``entries`` are those up to the
    call's start, of which ``ahead`` may have written some. To be let go of whatever happens."""

    def __init__(
        self, store: CallStore, asked: Asked, started: CallRecord, expected: dict[BudgetKind, int], *, alone: bool
    ) -> None:
        self.begun: asyncio.Future[Started] | None = None
        self.entries: list[NewEvent] = []
        self.ahead: HeadStart | None = None
        self._alone = alone
        self._asked = asked
        self._started = started
        self._expected = expected
        self._store = store
        self._computing: asyncio.Task[Any] | None = asyncio.current_task()
        loop = asyncio.get_running_loop()
        self._soon = loop.call_soon(self._while_it_computes)
        self._timer = loop.call_later(UNRECORDED_SECONDS, self._begin)

    def computed(self) -> None:
        """To be called once, when the computing is over."""
        self._computing = None
        self._timer.cancel()
        if not self.entries and self.begun is None:
            self._soon.cancel()
            self._prepare()
        # They hold this, and it them: the collector would find that much later, and memory grow until then.
        del self._soon, self._timer

    def let_go(self) -> None:
        """Of what was written ahead, unless the rest followed."""
        if self.ahead is not None:
            self._store.let_go(self.ahead)

    def _while_it_computes(self) -> None:
        self._prepare()
        if self._alone and self._computing is not None:
            asked, expected, entries = self._asked, self._expected, self.entries
            self.ahead = self._store.head_start(lambda tx: sqlite_calls.start_ahead(tx, asked, expected, entries))

    def _prepare(self) -> None:
        self.entries = entries_ready(self._asked, self._started, self._expected, self._store)

    def _begin(self) -> None:
        try:
            self.begun = asyncio.ensure_future(self._store.submit(lambda tx: sqlite_calls.start(tx, self._asked)))
        except PalyraError as error:
            self.begun = asyncio.get_running_loop().create_future()
            self.begun.set_exception(error)
        self.begun.add_done_callback(self._look)

    def _look(self, begun: asyncio.Future[Started]) -> None:
        """What the ledger refuses need not go on computing."""
        if self._computing is not None and (begun.cancelled() or begun.exception() is not None):
            self._computing.cancel()
