"""A QR code as one path of an SVG: a shape to draw, with nothing in it that could be taken for markup."""

from collections.abc import Sequence

import msgspec

from palyra.secret import Secret

# Survives a smudge on a screen.
_ERROR_CORRECTION = "m"
# Light modules around it that readers need.
BORDER = 4


class QrPath(msgspec.Struct, frozen=True, kw_only=True):
    """``size`` is the side of the square in modules, its border included."""

    size: int
    path: str


def qr_path(text: Secret) -> QrPath:
    import segno

    rows = list(segno.make(text.reveal(), error=_ERROR_CORRECTION, micro=False).matrix)
    pieces: list[str] = []
    for y, row in enumerate(rows):
        x = 0
        while x < len(row):
            length = _run(row, x)
            if row[x]:
                pieces.append(f"M{x + BORDER} {y + BORDER}h{length}v1h-{length}z")
            x += length
    return QrPath(size=len(rows) + 2 * BORDER, path="".join(pieces))


def _run(row: Sequence[int], start: int) -> int:
    """How many modules of one colour follow each other."""
    end = start
    while end < len(row) and bool(row[end]) == bool(row[start]):
        end += 1
    return end - start
