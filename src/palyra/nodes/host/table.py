"""What the host's two machines share: states and events that are keys of one table."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from palyra.errors import Failed


class MachineState(StrEnum):
    __hash__ = str.__hash__


class MachineEvent(StrEnum):
    __hash__ = str.__hash__


State = TypeVar("State", bound=MachineState)
Event = TypeVar("Event", bound=MachineEvent)


class HostMisused(Failed):
    code = "nodes.host_misused"
    hint = "this is a fault in Palyra: the node host was told something that its state does not allow"


def step(table: Mapping[tuple[State, Event], State], state: State, event: Event) -> State:
    try:
        return table[state, event]
    except KeyError:
        raise HostMisused(f"a host that is {state.value} cannot take {event.value}") from None
