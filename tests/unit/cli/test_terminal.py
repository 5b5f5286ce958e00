import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.cli.terminal import command_line
from palyra.visible_text import escape, escape_block, render_fields, spell_json

HOSTILE = [
    "\x1b[2J",
    "\x07",
    "\x9b31m",
    "\u202eevil",
    "\u200b",
    "\u2028",
    "\ufeff",
    "\U000e0041",
    "\x7f",
    "\ud800",
    "\r",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_steers_a_terminal_is_spelled_out(text: str) -> None:
    for made in (escape(text), escape_block(text), spell_json(text)):
        assert made.isprintable() and "\\" in made


@given(st.text())
def test_one_line_is_always_printable(text: str) -> None:
    assert escape(text).isprintable()
    assert escape_block(text).replace("\n", "").replace("\t", "").isprintable()


def test_letters_of_any_script_stay() -> None:
    for text in ("naïve 漢字 देवनागरी", "العربية", "путь/файл"):
        assert escape(text) == text
    # Among Latin letters they would pose as these, or turn their line around.
    assert escape("p\u0430ypal") == "p\\u0430ypal" and escape("a \u05d0") == "a \\u05d0"
    assert escape("a\nb\tc") == "a\\nb\\tc"
    assert escape_block("a\nb\tc") == "a\nb\tc"


JSON_VALUES = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(JSON_VALUES)
def test_pretty_json_is_exact_and_harmless(value: object) -> None:
    made = spell_json(value)
    assert json.loads(made) == value
    assert all(line.isprintable() for line in made.split("\n"))


def test_a_value_cannot_pose_as_a_label() -> None:
    made = render_fields((("tool", "x\nstate  approved"), ("state", "pending"), ("empty", "")))
    assert made.split("\n") == ["tool   x", "       state  approved", "state  pending"]


def test_commands_can_be_copied() -> None:
    assert command_line("palyra", "--state-dir", "/a b/c'd", "x") == "palyra --state-dir '/a b/c'\"'\"'d' x"
    assert command_line("$(reboot)", "", "\x1b[2J") == "'$(reboot)' '' '\\x1b[2J'"
