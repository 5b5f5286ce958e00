"""Names of keys and chords."""

import pytest

from palyra.browser.domain.keys import chord, modifier_mask
from palyra.browser.domain.page_errors import BadKey


def test_a_letter_with_and_without_shift() -> None:
    (plain,) = chord("a")
    assert (plain.key, plain.code, plain.number, plain.text) == ("a", "KeyA", 65, "a")
    shift, upper = chord("Shift+a")
    assert (shift.key, shift.modifiers) == ("Shift", 8)
    assert (upper.key, upper.text, upper.modifiers) == ("A", "A", 8)


def test_a_chord_is_a_command_and_writes_nothing() -> None:
    control, letter = chord("Control+a")
    down, up = letter.events()
    assert down["type"] == "rawKeyDown"
    assert "text" not in down
    assert (down["modifiers"], up["type"]) == (2, "keyUp")
    assert control.code == "ControlLeft"


@pytest.mark.parametrize(
    ("name", "key", "code"),
    [
        ("Enter", "Enter", "Enter"),
        ("Esc", "Escape", "Escape"),
        ("Space", " ", "Space"),
        ("Down", "ArrowDown", "ArrowDown"),
        ("F5", "F5", "F5"),
        ("?", "?", "Slash"),
        ("!", "!", "Digit1"),
        ("+", "+", "Equal"),
        ("Control++", "+", "Equal"),
        ("ä", "ä", ""),
    ],
)
def test_other_keys(name: str, key: str, code: str) -> None:
    stroke = chord(name)[-1]
    assert (stroke.key, stroke.code) == (key, code)


@pytest.mark.parametrize("name", ["", "Entr", "a+b", "Control+", "+a+", "\n", "ab"])
def test_what_is_no_key(name: str) -> None:
    with pytest.raises(BadKey):
        chord(name)


def test_modifiers_of_a_click() -> None:
    assert modifier_mask(("Shift", "Ctrl")) == 10
    with pytest.raises(BadKey):
        modifier_mask(("Hyper",))
