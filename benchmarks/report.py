"""The report of a run: one table, and a sentence about each bar that was not met."""

from collections.abc import Iterable
from typing import Any

from benchmarks.bar import Bar, Judged, Row, Verdict

_COLUMNS = ("what", "p50", "p99", "unit", "peer", "p50", "p99", "ratio", "n", "bar", "verdict")


def table(rows: Iterable[Row]) -> str:
    lines = [_COLUMNS, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _cells(row: Row) -> tuple[str, ...]:
    bar = row["bar"]
    return (
        row["name"],
        number(row["ours_p50"]),
        number(row["ours_p99"]),
        row["unit"],
        row["peer"],
        number(row["peer_p50"]),
        number(row["peer_p99"]),
        number(row["ratio"]),
        str(row["samples"]),
        bar.words if isinstance(bar, Bar) else "-",
        str(bar.judge(row)) if isinstance(bar, Bar) else "-",
    )


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def summary(judged: list[Judged]) -> str:
    """How many bars were met, then each that was not: what was reached, the bar, and why as far as that is known."""
    met = [each for each in judged if each.verdict is Verdict.MET]
    missed = [each for each in judged if each.verdict is Verdict.MISSED]
    unknown = [each for each in judged if each.verdict is Verdict.NOT_MEASURED]
    lines = [f"bars met {len(met)} of {len(judged)}; missed {len(missed)}; not measured {len(unknown)}"]
    for each in missed:
        cause = each.bar.shortfall or "no cause is known: this is new"
        lines.append(f"missed: {_named(each.bar)}: {number(each.reached)} {each.bar.unit}, {each.bar.words}; {cause}")
    lines += [f"not measured: {_named(each.bar)}: {each.why}" for each in unknown]
    return "\n".join(lines)


def _named(bar: Bar) -> str:
    return f"{bar.key} ({bar.what}{'' if bar.against == '-' else f' / {bar.against}'})"


def document(rows: Iterable[Row], judged: list[Judged], machine: dict[str, Any]) -> dict[str, Any]:
    """Render the results for programs. A row has the key of its bar; the bars follow the rows."""
    return {
        "version": 1,
        "machine": machine,
        "rows": [{**row, "bar": row["bar"].key if isinstance(row["bar"], Bar) else None} for row in rows],
        "bars": [
            {
                "key": each.bar.key,
                "kind": each.bar.kind,
                "number": each.bar.number,
                "unit": each.bar.unit,
                "reached": each.reached,
                "verdict": each.verdict,
                "cause": each.bar.shortfall if each.verdict is Verdict.MISSED else "",
            }
            for each in judged
        ],
    }
