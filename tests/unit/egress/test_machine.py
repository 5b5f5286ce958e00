import pytest

from palyra.egress.protocols.state_machine import MachineEvent, MachineMisused, MachineState, step


class Light(MachineState):
    OFF = "off"
    ON = "on"


class Press(MachineEvent):
    SWITCH = "switch"


TABLE = {(Light.OFF, Press.SWITCH): Light.ON}


def test_a_step_is_what_the_table_says_and_nothing_else() -> None:
    assert step(TABLE, Light.OFF, Press.SWITCH) is Light.ON
    with pytest.raises(MachineMisused, match="a machine that is on cannot take switch"):
        step(TABLE, Light.ON, Press.SWITCH)


def test_members_are_keys_like_their_texts() -> None:
    assert hash(Light.OFF) == hash("off") and {Light.OFF: 1}[Light("off")] == 1
