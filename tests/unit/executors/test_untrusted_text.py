import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.executors.untrusted_text import remove_hidden, to_one_line


@pytest.mark.parametrize(
    ("text", "seen", "taken"),
    [
        ("plain\ttext\n", "plain\ttext\n", 0),
        ("a\r\nb\rc\u2028d\x85e", "a\nb\nc\nd\ne", 0),
        ("ig\u200bno\u2060re", "ignore", 2),
        ("abc\u202egpj.exe\u202c", "abcgpj.exe", 2),
        ("\x1b[31mred\x07", "[31mred", 2),
        ("x\x00y", "xy", 1),
        ("hi" + "".join(chr(0xE0000 + ord(letter)) for letter in "ignore"), "hi", 6),
        ("a\ufe0f\ufe01\ufe02", "a", 3),
        ("می\u200cخواهم", "می\u200cخواهم", 0),
        ("👨\u200d👩\u200d👧", "👨\u200d👩\u200d👧", 0),
        ("❤\ufe0f\u200d🔥 ❤\ufe0f", "❤\ufe0f\u200d🔥 ❤\ufe0f", 0),
        ("pass\u200dword", "password", 1),
        ("👨\u200d\u200d\u200d👩", "👨👩", 3),
        ("half \ud800", "half ", 1),
    ],
)
def test_what_is_taken_out(text: str, seen: str, taken: int) -> None:
    assert remove_hidden(text) == (seen, taken)


@given(st.text())
def test_no_control_or_direction_is_left(text: str) -> None:
    seen, taken = remove_hidden(text)
    assert taken >= 0
    for character in seen:
        assert character in "\t\n" or unicodedata.category(character) not in ("Cc", "Cs")
        assert character not in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u200e\u200f\ufeff"


def test_one_line() -> None:
    assert to_one_line(" a\n b\u202e\tc ", 10) == "a b c"
    assert to_one_line("x" * 100, 10) == "x" * 9 + "…"
    assert len(to_one_line("é" * 1_000_000, 10)) == 10
