import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.pipeline.domain.budget import Account, BudgetExhausted, BudgetKind, RunBudget, reserve


def test_calls_are_indivisible_and_time_is_a_ceiling() -> None:
    accounts = {
        BudgetKind.CALLS: Account(cap=10, reserved=5, used=4),
        BudgetKind.WALL_MS: Account(cap=1000, used=900),
    }
    granted = reserve(accounts, {BudgetKind.CALLS: 1, BudgetKind.WALL_MS: 30_000})
    assert granted == {BudgetKind.CALLS: 1, BudgetKind.WALL_MS: 100}


@pytest.mark.parametrize("kind", list(BudgetKind))
def test_an_empty_account_refuses_and_names_itself(kind: BudgetKind) -> None:
    with pytest.raises(BudgetExhausted) as refused:
        reserve({kind: Account(cap=3, reserved=1, used=2)}, {kind: 1})
    assert refused.value.details["budget"] == kind.value


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100), st.integers(1, 100))
def test_nothing_is_granted_beyond_the_cap(cap: int, reserved: int, used: int, asked: int) -> None:
    account = Account(cap=cap, reserved=reserved, used=used)
    try:
        granted = reserve({BudgetKind.WALL_MS: account}, {BudgetKind.WALL_MS: asked})
    except BudgetExhausted:
        assert cap <= reserved + used
    else:
        assert 0 < granted[BudgetKind.WALL_MS] <= asked
        assert reserved + used + granted[BudgetKind.WALL_MS] <= cap


def test_every_kind_has_a_cap() -> None:
    assert all(RunBudget().cap(kind) > 0 for kind in BudgetKind)
