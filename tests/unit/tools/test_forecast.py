"""What a call will be granted, foretold only where it hardly can be otherwise."""

from palyra.tools.budget import BudgetKind, RunBudget
from palyra.tools.forecast import MAX_REMEMBERED_RUNS, PLENTY, Forecast

ASKED = {BudgetKind.CALLS: 1, BudgetKind.WALL_MS: 1_000}


def test_a_run_that_the_call_opens_grants_what_its_budget_has() -> None:
    forecast = Forecast()
    assert forecast.grants(None, RunBudget(), ASKED) == ASKED
    assert forecast.grants(None, RunBudget(wall_ms=300), ASKED) == {BudgetKind.CALLS: 1, BudgetKind.WALL_MS: 300}
    assert forecast.grants(None, RunBudget(calls=0), ASKED) is None


def test_nothing_is_foretold_of_an_unknown_run_or_of_one_with_little_left() -> None:
    forecast = Forecast()
    assert forecast.grants("R", RunBudget(), ASKED) is None
    forecast.note("R", {BudgetKind.CALLS: PLENTY, BudgetKind.WALL_MS: PLENTY * 1_000})
    assert forecast.grants("R", RunBudget(), ASKED) == ASKED
    assert forecast.grants("R", RunBudget(), {**ASKED, BudgetKind.WASM_FUEL: 1}) is None
    forecast.note("R", {BudgetKind.WALL_MS: PLENTY * 1_000 - 1})
    assert forecast.grants("R", RunBudget(), ASKED) is None


def test_it_remembers_a_bounded_number_of_runs() -> None:
    forecast = Forecast()
    plenty = {BudgetKind.CALLS: 100, BudgetKind.WALL_MS: 100_000}
    for number in range(MAX_REMEMBERED_RUNS + 1):
        forecast.note(f"R{number}", plenty)
    forecast.note("silent", {})
    assert forecast.grants("R0", RunBudget(), ASKED) is None
    assert forecast.grants("silent", RunBudget(), ASKED) is None
    assert forecast.grants(f"R{MAX_REMEMBERED_RUNS}", RunBudget(), ASKED) == ASKED
