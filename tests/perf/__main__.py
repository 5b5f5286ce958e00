"""Runs every benchmark of this folder and writes one table: to the terminal, as JSON, and as a chart."""

import importlib
import json
import pkgutil
import sys
from pathlib import Path
from typing import Any

import perf
from perf.chart import bar_chart

RESULTS = Path("bench-results")


def main(chosen: list[str]) -> None:
    rows: list[dict[str, Any]] = []
    for module in sorted(name for _, name, _ in pkgutil.iter_modules(perf.__path__) if name.endswith("_bench")):
        if chosen and module.removesuffix("_bench") not in chosen:
            continue
        print(f"running {module}", file=sys.stderr)
        rows += importlib.import_module(f"perf.{module}").run()
    print(table(rows))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "bench.json").write_text(json.dumps(rows, indent=2) + "\n")
    (RESULTS / "bench.svg").write_text(bar_chart(rows))
    print(f"written to {RESULTS}/bench.json and {RESULTS}/bench.svg", file=sys.stderr)


def table(rows: list[dict[str, Any]]) -> str:
    shown = [("what", "p50", "p99", "unit", "peer", "p50", "p99", "ratio", "n", "bar")]
    for row in rows:
        shown.append(
            (
                row["name"],
                _number(row["ours_p50"]),
                _number(row["ours_p99"]),
                row["unit"],
                row["peer"],
                _number(row["peer_p50"]),
                _number(row["peer_p99"]),
                _number(row["ratio"]),
                str(row["samples"]),
                row["bar"],
            )
        )
    widths = [max(len(line[column]) for line in shown) for column in range(len(shown[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in shown)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


if __name__ == "__main__":
    main(sys.argv[1:])
