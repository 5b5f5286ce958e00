"""The log messages and the progress of a call. What a client really hears is in tests/e2e/test_mcp_clients.py."""

import pytest

from palyra.executors.mcp_upstream.limits import MAX_SESSIONS
from palyra.server.mcp.call_progress import level_of
from palyra.server.mcp.transports import LEVELS, LogLevels

ME = ("token", "agent:a", "s")


def test_nothing_is_told_before_a_client_asks_and_then_from_its_level_on() -> None:
    levels = LogLevels()
    assert not levels.any_wanted(ME) and not levels.wanted(ME, "emergency")
    for chosen in LEVELS:
        levels.choose(ME, chosen)
        assert [level for level in LEVELS if levels.wanted(ME, level)] == list(LEVELS[LEVELS.index(chosen) :])
    assert levels.any_wanted(ME) and not levels.any_wanted(("token", "agent:a", "other"))


def test_what_is_remembered_is_bounded_and_the_oldest_goes_first() -> None:
    levels = LogLevels()
    for number in range(MAX_SESSIONS + 1):
        levels.choose(("token", "agent:a", str(number)), "info")
    assert not levels.any_wanted(("token", "agent:a", "0")) and levels.any_wanted(("token", "agent:a", "1"))


@pytest.mark.parametrize(
    ("kind", "level"), [("call.started", "info"), ("call.refused", "warning"), ("egress.refused", "warning")]
)
def test_what_kept_a_call_from_its_work_is_a_warning(kind: str, level: str) -> None:
    assert level_of(kind) == level
