"""Small charts and QR codes as SVG. The stylesheet colours them by class, because no style may be inline."""

from collections.abc import Sequence

import msgspec
from markupsafe import Markup

from palyra.secret import Secret

_WIDTH = 100
_HEIGHT = 32
_GAP = 0.25
# A shorter bar is invisible.
_THINNEST = 0.6


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One column: parts from the bottom up, each with the class that colours it."""

    label: str
    parts: tuple[tuple[str, int], ...]

    @property
    def total(self) -> int:
        return sum(amount for _, amount in self.parts)


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The times when a call waited and ran, as fractions of the shown time."""

    waited: tuple[float, float]
    ran: tuple[float, float] | None
    good: bool


def span(value: Span, label: str) -> Markup:
    pieces = [_rect("chart-space", 0, 0, _WIDTH, 4)]
    for name, part in (("chart-waits", value.waited), ("chart-ok" if value.good else "chart-bad", value.ran)):
        if part is not None and (part[1] > part[0] or part is value.ran):
            left, right = min(part[0] * _WIDTH, _WIDTH - _THINNEST), part[1] * _WIDTH
            pieces.append(_rect(name, left, 0, max(right - left, _THINNEST), 4))
    return Markup(
        '<svg class="meter" viewBox="0 0 {} 4" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(_WIDTH, label, Markup("").join(pieces))


def bars(columns: Sequence[Bar], label: str) -> Markup:
    """Draw columns over time. Each has its numbers as a tooltip."""
    top = max((column.total for column in columns), default=0) or 1
    step = _WIDTH / max(len(columns), 1)
    drawn: list[Markup] = []
    for number, column in enumerate(columns):
        drawn.append(_column(column, number * step, step, top))
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(_WIDTH, _HEIGHT, label, Markup("").join(drawn))


def _column(column: Bar, left: float, step: float, top: int) -> Markup:
    numbers = ", ".join(f"{amount} {name}" for name, amount in column.parts if amount) or "nothing"
    pieces = [Markup("<title>{}: {}</title>").format(column.label, numbers)]
    pieces.append(_rect("chart-space", left, 0, step, _HEIGHT))
    bottom = float(_HEIGHT)
    for name, amount in column.parts:
        if amount:
            height = max(amount / top * _HEIGHT, 1.0)
            bottom -= height
            pieces.append(_rect(f"chart-{name}", left + step * _GAP / 2, bottom, step * (1 - _GAP), height))
    return Markup("<g>{}</g>").format(Markup("").join(pieces))


def _rect(name: str, x: float, y: float, width: float, height: float) -> Markup:
    return Markup('<rect class="{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>').format(
        name, x, y, width, height
    )


def meter(used: int, reserved: int, cap: int, label: str) -> Markup:
    whole = max(cap, 1)
    of_used = max(min(used / whole, 1.0) * _WIDTH, _THINNEST if used else 0)
    of_reserved = min(reserved / whole, 1.0) * _WIDTH
    spent = "chart-bad" if of_used > _NEARLY_ALL else "chart-ok"
    return Markup(
        '<svg class="meter" viewBox="0 0 {} 4" preserveAspectRatio="none" role="img" aria-label="{}">{}{}{}</svg>'
    ).format(
        _WIDTH,
        label,
        _rect("chart-space", 0, 0, _WIDTH, 4),
        _rect(spent, 0, 0, of_used, 4),
        _rect("chart-waits", of_used, 0, min(of_reserved, _WIDTH - of_used), 4),
    )


_NEARLY_ALL = 90.0


# A QR code of this level survives a smudge on a screen.
_ERROR_CORRECTION = "m"
# Light modules around it that readers need.
BORDER = 4


class QrPath(msgspec.Struct, frozen=True, kw_only=True):
    """A QR code as one SVG path, which holds no markup. ``size`` is its side in modules, with the border."""

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
    end = start
    while end < len(row) and bool(row[end]) == bool(row[start]):
        end += 1
    return end - start
