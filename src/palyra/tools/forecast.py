"""What a call will be granted, foretold before the ledger says it.

A call without effects may compute before it is written down, under the grants it is expected to get. The ledger has
the last word: what was computed under other grants is thrown away. So a forecast may be wrong, and is only given where
it hardly can be: for a run of which plenty is left.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from palyra.tools.budget import BudgetExhausted, BudgetKind, RunBudget, reserve

# Of a run that has less than this many times what a call asks for, nothing is foretold.
PLENTY: Final = 2
# Runs remembered; of others, nothing is foretold.
MAX_REMEMBERED_RUNS: Final = 1_024


class Forecast:
    def __init__(self) -> None:
        self._left: OrderedDict[str, Mapping[BudgetKind, int]] = OrderedDict()

    def grants(
        self, run_id: str | None, budget: RunBudget, asked: Mapping[BudgetKind, int]
    ) -> dict[BudgetKind, int] | None:
        """None when nothing can be foretold. Without ``run_id`` the call opens a run with this ``budget``, of which
        nobody else can have spent anything."""
        if run_id is None:
            try:
                return reserve(budget.accounts(), asked)
            except BudgetExhausted:
                return None
        left = self._left.get(run_id)
        if left is None:
            return None
        for kind, amount in asked.items():
            if left.get(kind, 0) < PLENTY * amount:
                return None
        return dict(asked)

    def note(self, run_id: str, left: Mapping[BudgetKind, int]) -> None:
        """What the ledger said is left of a run; nothing, if it did not say."""
        if not left:
            return
        self._left[run_id] = {**self._left.get(run_id, {}), **left}
        self._left.move_to_end(run_id)
        if len(self._left) > MAX_REMEMBERED_RUNS:
            self._left.popitem(last=False)
