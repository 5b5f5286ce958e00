from enum import StrEnum

import pytest

from palyra.nodes.agent.link_state import HostMisused, step


class State(StrEnum):
    OPEN = "open"
    SHUT = "shut"


class Event(StrEnum):
    SHUT = "shut"


def test_what_the_table_does_not_have_is_a_fault_of_the_program() -> None:
    table = {(State.OPEN, Event.SHUT): State.SHUT}
    assert step(table, State.OPEN, Event.SHUT) is State.SHUT
    with pytest.raises(HostMisused, match="shut cannot take shut"):
        step(table, State.SHUT, Event.SHUT)
