"""A bar for every ratio: ours against the peer measured in the same run. A mark stands at one."""

from html import escape
from typing import Any

ROW, LEFT, WIDTH, SCALE_MAX = 26, 430, 420, 3.0


def bar_chart(rows: list[dict[str, Any]]) -> str:
    shown = [row for row in rows if row["ratio"] is not None]
    height = ROW * (len(shown) + 2)
    one = LEFT + WIDTH / SCALE_MAX
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 90} {height}" font-family="sans-serif"'
        ' font-size="13">',
        f'<rect width="100%" height="{height}" fill="#fff"/>',
        f'<line x1="{one}" y1="{ROW}" x2="{one}" y2="{height - ROW / 2}" stroke="#888" stroke-dasharray="3 3"/>',
        f'<text x="{one}" y="{ROW - 8}" text-anchor="middle" fill="#555">same as peer</text>',
    ]
    for number, row in enumerate(shown, 1):
        y = ROW * number
        length = max(2.0, min(row["ratio"], SCALE_MAX) / SCALE_MAX * WIDTH)
        label = escape(f"{row['name']} / {row['peer']}")
        parts += [
            f'<text x="{LEFT - 8}" y="{y + 17}" text-anchor="end">{label[:70]}</text>',
            f'<rect x="{LEFT}" y="{y + 4}" width="{length:.1f}" height="{ROW - 8}" rx="3" fill="#3b6fb6"/>',
            f'<text x="{LEFT + length + 6:.1f}" y="{y + 17}">{row["ratio"]:.2f}x</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"
