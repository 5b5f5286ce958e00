"""Shares of the calls in progress, and the run of calls that name none."""

import pytest

from palyra.ids import Principal
from palyra.pipeline.domain.call import ToolCallConfig
from palyra.pipeline.domain.shares import CallShares, is_operators_own
from palyra.pipeline.domain.workspaces import Workspaces
from palyra.pipeline.reserve import DEFAULT_RUN_SECONDS, MAX_DEFAULT_RUNS, DefaultRuns
from palyra.policy.request import EntityDirectory

DIRECTORY = EntityDirectory.from_lists(operators=["user:anna"])


def shares(total: int) -> CallShares:
    return CallShares.of(
        ToolCallConfig(directory=DIRECTORY, workspaces=Workspaces(default="/w"), max_concurrent_calls=total)
    )


@pytest.mark.promise("P-floods")
@pytest.mark.parametrize(
    ("total", "share", "reserve"), [(256, 64, 16), (32, 24, 8), (8, 6, 2), (4, 3, 1), (2, 1, 0), (1, 1, 0)]
)
def test_however_few_calls_there_are_one_principal_leaves_some(total: int, share: int, reserve: int) -> None:
    assert shares(total) == CallShares(total=total, share=share, reserve=reserve)


def test_only_an_operators_own_call_gets_the_reserve() -> None:
    bounds = shares(8)
    held = ["agent:a"] * 3 + ["agent:b"] * 3
    refused = bounds.refuse(held, "agent:c", operators_own=False)
    assert refused is not None and refused.code == "call.too_many_at_once"
    assert "agent:" not in f"{refused.message} {refused.details}"
    assert bounds.refuse(held, "agent:a", operators_own=True) is None
    full = bounds.refuse([*held, "user:anna", "user:anna"], "user:anna", operators_own=True)
    assert full is not None and full.details["holders"] == {"agent:a": 3, "agent:b": 3, "user:anna": 2}


@pytest.mark.parametrize(
    ("principal", "channel", "own"),
    [
        ("user:anna", "mcp", True),
        ("agent:a", "cli", True),
        ("agent:a", "console", True),
        ("agent:a", "mcp", False),
        ("agent:a", "api", False),
        ("user:ben", "node", False),
    ],
)
def test_an_agent_with_an_operators_token_is_an_agent(principal: str, channel: str, own: bool) -> None:
    assert is_operators_own(DIRECTORY, Principal.parse(principal), channel) is own


def test_a_principal_keeps_its_run_for_an_hour() -> None:
    now = 0.0
    runs = DefaultRuns(lambda: now)
    first = runs.run_of("agent:a")
    now += DEFAULT_RUN_SECONDS - 1
    assert runs.run_of("agent:a") == first != runs.run_of("agent:b")
    now += 1
    assert runs.run_of("agent:a") != first


def test_the_runs_that_are_remembered_are_bounded() -> None:
    runs = DefaultRuns(lambda: 0.0)
    for number in range(MAX_DEFAULT_RUNS + 10):
        runs.run_of(f"agent:{number}")
    assert len(runs._runs) == MAX_DEFAULT_RUNS
