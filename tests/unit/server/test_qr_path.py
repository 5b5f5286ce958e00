"""The picture of a code is a path of squares, and reads as the code."""

import re

import segno

from palyra.secret import Secret
from palyra.server.console.svg import BORDER, qr_path


def test_every_dark_module_is_drawn_once_and_nothing_else() -> None:
    text = "palyra://pair?v=1&k=worker&t=abc"
    made = qr_path(Secret(text))
    drawn: set[tuple[int, int]] = set()
    for x, y, length in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\3z", made.path):
        drawn |= {(int(x) + step - BORDER, int(y) - BORDER) for step in range(int(length))}
    matrix = segno.make(text, error="m", micro=False).matrix
    assert drawn == {(x, y) for y, row in enumerate(matrix) for x, module in enumerate(row) if module}
    assert made.size == len(matrix) + 2 * BORDER and re.fullmatch(r"[Mhvz0-9 -]+", made.path)
