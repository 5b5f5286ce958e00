"""Small curves over a logarithmic axis: how a cost grows, drawn without any library."""

import math
from html import escape

WIDTH, HEIGHT, LEFT, TOP, GAP = 420, 150, 70, 40, 60


def curves(series: dict[str, dict[int, float]]) -> str:
    """One panel for each series of (how much there is, what it then costs); the cost's axis begins at nothing."""
    total = len(series) * (HEIGHT + GAP) + TOP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 40} {total}" font-family="sans-serif"'
        ' font-size="12">',
        f'<rect width="100%" height="{total}" fill="#fff"/>',
    ]
    for number, (name, points) in enumerate(series.items()):
        parts += _panel(name, points, TOP + number * (HEIGHT + GAP))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(name: str, points: dict[int, float], top: int) -> list[str]:
    amounts, most = list(points), max(points.values())
    low, high = math.log10(amounts[0]), math.log10(amounts[-1])
    bottom = top + HEIGHT

    def place(amount: int, cost: float) -> tuple[float, float]:
        across = (math.log10(amount) - low) / (high - low) if high > low else 0.0
        return LEFT + across * WIDTH, bottom - cost / most * (HEIGHT - 20)

    dots = [place(amount, cost) for amount, cost in points.items()]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
    parts = [
        f'<text x="{LEFT}" y="{top - 8}" font-weight="bold">{escape(name)}</text>',
        f'<line x1="{LEFT}" y1="{bottom}" x2="{LEFT + WIDTH}" y2="{bottom}" stroke="#888"/>',
        f'<polyline points="{line}" fill="none" stroke="#3b6fb6" stroke-width="2"/>',
    ]
    for (amount, cost), (x, y) in zip(points.items(), dots, strict=True):
        parts += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#3b6fb6"/>',
            f'<text x="{x:.1f}" y="{y - 8:.1f}" text-anchor="middle">{cost:.4g}</text>',
            f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle" fill="#555">{amount:,}</text>',
        ]
    return parts
