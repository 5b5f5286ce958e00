"""Pages of docs/reference that list every bound of the program, and every bar of its benchmark."""

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import palyra

sys.path.append(str(Path(palyra.__file__).resolve().parents[2]))
from benchmarks.bars import BARS

SOURCE = Path(palyra.__file__).parent
UNIT_CONSTANTS = {"KIB", "MIB", "GIB"}
SIZES = ((1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
SECONDS_IN = {"seconds": 1, "ms": 1e-3, "nanoseconds": 1e-9}
TIMES = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


class Bound(NamedTuple):
    name: str
    value: str
    reason: str


def limits_page(generated: str) -> str:
    lines = [
        "# Limits",
        generated,
        "",
        "Every bound of Palyra: its name in the code, its value, and its reason. A row without a reason shares the",
        "reason above it or needs none. Bounds that an operator may change are in [Configuration](configuration.md).",
    ]
    modules = {_module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}
    homes = {name: path for name, path in modules.items() if is_limits_module(path)}
    for module, path in sorted(homes.items()):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        title = (ast.get_docstring(tree) or "").partition("\n")[0]
        lines += ["", f"## `{module}`", "", title, "", *_table(read_bounds(module, path))]
    lines += ["", "## Bounds that stand beside their code", ""]
    lines += _table(
        bound._replace(name=f"{module.removeprefix('palyra.')}.{bound.name}")
        for module, path in sorted(modules.items())
        if module not in homes
        for bound in read_bounds(module, path)
        if bound.name.startswith(("MAX_", "MIN_"))
    )
    return "\n".join(lines) + "\n"


def performance_bars_page(generated: str) -> str:
    lines = [
        "# Performance bars",
        generated,
        "",
        "`make bench` judges each figure by something that it measures in turn in the same run.",
        "[Performance](../explanation/performance.md) tells how, and lists what falls short.",
        "",
        "| what | bar | against | key |",
        "|---|---|---|---|",
        *(f"| {bar.what} | {bar.words} | {bar.against} | `{bar.key}` |" for bar in BARS),
    ]
    return "\n".join(lines) + "\n"


def is_limits_module(path: Path) -> bool:
    return path.name == "limits.py" or path.name.endswith("_limits.py")


def read_bounds(module: str, path: Path) -> Iterator[Bound]:
    """Yield the public constants of a module in their order, with the fields of the classes of a limits module."""
    text = path.read_text(encoding="utf-8")
    source = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and is_limits_module(path):
            declared, body = getattr(importlib.import_module(module), node.name), node.body
            if not issubclass(declared, msgspec.Struct):
                continue
            holder = declared()
            reason = ast.get_docstring(node) or ""
            for field in body:
                if (name := _target(field)) is not None:
                    reason = _reason(field, source) or reason
                    yield Bound(f"{node.name}.{name}", render_value(field, name, getattr(holder, name)), reason)
                    reason = ""
        elif (name := _target(node)) is not None and name.isupper() and not name.startswith("_"):
            value = getattr(importlib.import_module(module), name)
            if name not in UNIT_CONSTANTS and isinstance(value, int | float | str | bytes | tuple):
                yield Bound(name, render_value(node, name, value), _reason(node, source))


def _target(node: ast.stmt) -> str | None:
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return None
    target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
    return target.id if isinstance(target, ast.Name) else None


def _reason(node: ast.stmt, source: list[str]) -> str:
    """Return the comment lines directly above a statement, as one text."""
    first = last = node.lineno - 1
    while first and source[first - 1].lstrip().startswith("#"):
        first -= 1
    return " ".join(line.strip().lstrip("# ") for line in source[first:last])


def render_value(node: ast.stmt, name: str, value: Any) -> str:
    """Write a value in the unit that its name or its expression tells: ``65536`` as ``64 KiB``."""
    if not isinstance(value, int | float):
        return f"`{value!r}`"
    unit = name.lower().rpartition("_")[2]
    written = ast.unparse(node).rpartition("=")[2]
    if unit == "bytes" or any(word in written for word in UNIT_CONSTANTS):
        size, word = next(((size, word) for size, word in SIZES if value and value % size == 0), (1, "B"))
        return f"{value // size:,} {word}"
    if unit in SECONDS_IN:
        seconds = round(value * SECONDS_IN[unit], 9)
        if 0 < seconds < 1:
            return f"{seconds * 1_000:g} ms"
        # 3 h and not 10,800 s, but 90 s and not 1.5 min.
        return next(f"{seconds / size:,g} {word}" for size, word in TIMES if seconds % size == 0 or size == 1)
    if unit in ("port", "uid"):
        return str(value)
    return f"{value:,} characters" if unit == "chars" else f"{value:,}"


def _table(bounds: Iterator[Bound]) -> list[str]:
    rows = [f"| `{name}` | {value} | {reason.replace('|', chr(92) + '|')} |" for name, value, reason in bounds]
    return ["| name | value | reason |", "|---|---|---|", *rows]


def _module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
