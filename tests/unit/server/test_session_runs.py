import pytest

from palyra.executors.mcp_upstream import limits
from palyra.server.mcp.backend import McpCaller
from palyra.server.mcp.transports import SessionRuns


def caller(name: str = "bot", token: str = "T", **more: str) -> McpCaller:
    return McpCaller(principal=f"agent:{name}", actor=f"agent:{name}", token_id=token, **more)


@pytest.mark.promise("P-limits")
def test_a_session_keeps_its_run_until_it_was_left_alone_too_long() -> None:
    now = 0.0
    runs = SessionRuns(lambda: now)
    first = runs.run_of(caller(), "s")
    now += limits.SESSION_IDLE_SECONDS - 1
    assert runs.run_of(caller(), "s") == first
    now += limits.SESSION_IDLE_SECONDS
    assert runs.run_of(caller(), "s") != first
    assert len(runs) == 1


def test_another_token_with_the_same_session_has_another_run() -> None:
    runs = SessionRuns(lambda: 0.0)
    mine = runs.run_of(caller(), "s")
    assert runs.run_of(caller(token="U"), "s") != mine
    assert runs.run_of(caller("other"), "s") != mine
    assert runs.run_of(caller(), "s2") != mine


@pytest.mark.promise("P-limits")
def test_sessions_are_bounded_and_a_bound_token_has_its_own_run() -> None:
    runs = SessionRuns(lambda: 0.0)
    for number in range(limits.MAX_SESSIONS * 2):
        runs.run_of(caller(), str(number))
    assert len(runs) <= limits.MAX_SESSIONS + 1
    fixed = "01J0000000000000000000000A"
    assert runs.run_of(caller(run_id=fixed), "s") == fixed
