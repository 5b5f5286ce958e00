"""Base of the protocol machines: states and events are the keys of one transition table.

A peer that misbehaves is an event in the table. A caller that misuses a machine is a fault of the program.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from palyra.errors import Failed


class MachineState(StrEnum):
    # Enum hashes by a function in Python; these are looked up on every connection.
    __hash__ = str.__hash__


class MachineEvent(StrEnum):
    __hash__ = str.__hash__


State = TypeVar("State", bound=MachineState)
Event = TypeVar("Event", bound=MachineEvent)


class MachineMisused(Failed):
    code = "egress.machine_misused"
    hint = "this is a fault in Palyra: a protocol machine got an event that its state does not allow"


def step(table: Mapping[tuple[State, Event], State], state: State, event: Event) -> State:
    try:
        return table[state, event]
    except KeyError:
        raise MachineMisused(f"a machine that is {state.value} cannot take {event.value}") from None
