"""What an operator does travels as one value."""

import msgspec
import pytest

from palyra.browser.domain.action import MouseButton
from palyra.browser.domain.session_api import OperatorDoes, OperatorInput


def test_input_of_an_operator_is_read_strictly() -> None:
    given = msgspec.json.decode(b'{"does": "click", "x": 3, "y": 4}', type=OperatorInput)
    assert given == OperatorInput(does=OperatorDoes.CLICK, x=3, y=4, button=MouseButton.LEFT)


@pytest.mark.parametrize("raw", [b'{"does": "fly"}', b'{"x": 1}', b'{"does": "key", "speed": 2}'])
def test_what_is_no_input_is_refused(raw: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw, type=OperatorInput)
