import pytest

from palyra.egress.domain.grant import ByteBudget, Meter
from palyra.egress.domain.refusal import ByteBudgetSpent


def test_tunnels_share_one_budget_and_keep_their_own_counts() -> None:
    budget = ByteBudget(100)
    first, second = Meter(budget), Meter(budget)
    first.count_up(30)
    second.count_down(50)
    assert (first.up, first.down, second.up, second.down) == (30, 0, 0, 50)
    assert first.left() == second.left() == 20
    assert (budget.up, budget.down, budget.spent) == (30, 50, 80)


def test_bytes_that_do_not_fit_are_refused_whole() -> None:
    meter = Meter(ByteBudget(10))
    meter.spend_up(10)
    with pytest.raises(ByteBudgetSpent):
        meter.spend_up(1)
    assert meter.up == 10
