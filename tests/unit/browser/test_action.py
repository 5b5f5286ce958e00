"""Actions as values: one union, told apart by their name, with every element named in exactly one way."""

import msgspec
import pytest

from palyra.browser.domain.action import Action, BadTarget, Click, ElementTarget, Navigate, Type
from palyra.secret import Secret


@pytest.mark.parametrize(
    "fields",
    [{}, {"ref": "e1", "css": "a"}, {"name": "Buy"}, {"ref": "e1", "name": "Buy"}, {"ref": ""}],
    ids=["nothing", "two", "a name alone", "a name with a ref", "empty"],
)
def test_an_element_is_named_in_exactly_one_way(fields: dict[str, str]) -> None:
    with pytest.raises(BadTarget):
        ElementTarget(**fields)


def test_actions_are_told_apart_by_their_name() -> None:
    made = msgspec.json.decode(b'{"action": "click", "target": {"role": "button", "name": "Buy"}}', type=Action)
    assert made == Click(target=ElementTarget(role="button", name="Buy"))
    assert msgspec.json.decode(b'{"action": "navigate", "url": "https://a.test/"}', type=Action) == Navigate(
        url="https://a.test/"
    )


@pytest.mark.parametrize(
    "raw", [b'{"action": "fly"}', b'{"action": "back", "speed": 1}', b'{"url": "https://a.test/"}']
)
def test_what_is_no_action_is_refused(raw: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw, type=Action)


def test_a_secret_does_not_show_in_an_action() -> None:
    typed = Type(target=ElementTarget(ref="e1"), secret=Secret("hunter22"), origins=("https://a.test",))
    assert "hunter22" not in repr(typed)
