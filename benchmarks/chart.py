"""Every bar of a run drawn: how much of what is allowed was used. The mark stands at the bar itself."""

from html import escape

from benchmarks.bar import Bar, Judged, Verdict

ROW, LEFT, WIDTH, SCALE_MAX = 26, 520, 360, 2.0
_COLOURS = {Verdict.MET: "#2f855a", Verdict.MISSED: "#c53030"}


def bar_chart(judged: list[Judged]) -> str:
    """Green ends before the mark, red behind it; a bar that was not measured has words instead."""
    height = ROW * (len(judged) + 2)
    mark = LEFT + WIDTH / SCALE_MAX
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 210} {height}" font-family="sans-serif"'
        ' font-size="13">',
        f'<rect width="100%" height="{height}" fill="#fff"/>',
        f'<line x1="{mark}" y1="{ROW}" x2="{mark}" y2="{height - ROW / 2}" stroke="#888" stroke-dasharray="3 3"/>',
        f'<text x="{mark}" y="{ROW - 8}" text-anchor="middle" fill="#555">the bar</text>',
    ]
    for number, each in enumerate(judged, 1):
        parts += _line(each, ROW * number)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _line(each: Judged, y: int) -> list[str]:
    label = f'<text x="{LEFT - 8}" y="{y + 17}" text-anchor="end">{escape(_label(each.bar))}</text>'
    share = None if each.row is None else each.bar.share(each.row)
    if share is None:
        return [label, f'<text x="{LEFT}" y="{y + 17}" fill="#888">not measured</text>']
    length = max(2.0, min(max(share, 0.0), SCALE_MAX) / SCALE_MAX * WIDTH)
    # The words stand behind the mark, where it does not cross them.
    words = max(LEFT + length, LEFT + WIDTH / SCALE_MAX) + 8
    return [
        label,
        f'<rect x="{LEFT}" y="{y + 4}" width="{length:.1f}" height="{ROW - 8}" rx="3"'
        f' fill="{_COLOURS[each.verdict]}"/>',
        f'<text x="{words:.1f}" y="{y + 17}">{each.reached:,.3g} {escape(each.bar.unit)}'
        f'<tspan fill="#777"> ({escape(each.bar.words)})</tspan></text>',
    ]


def _label(bar: Bar) -> str:
    text = bar.what.replace("`", "") + ("" if bar.against == "-" else f" / {bar.against.replace('`', '')}")
    return text if len(text) <= 76 else f"{text[:75]}…"
