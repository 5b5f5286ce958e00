"""Pages of docs/reference about tools, metrics and protocols, made from the code itself."""

import ast
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from palyra.browser.service.metrics import BrowserMetrics
from palyra.egress.metrics import EgressMetrics
from palyra.executors.tool_set import builtin_catalog
from palyra.pipeline.observe import CallMetrics
from palyra.telemetry import metrics as names
from palyra.telemetry.prometheus import PrometheusMetrics
from palyra.workspace.protected_table import PROTECTED_TABLE, Handling

ROOT = Path(__file__).resolve().parent.parent
SOURCE = Path(names.__file__).resolve().parents[1]


_HANDLINGS = {
    Handling.SEALED: "read-only; new ones are moved aside",
    Handling.JUDGED: "judged by content",
    Handling.LET_BE: "may be written",
}


def protected_names_page(generated: str) -> str:
    lines = [
        "# Protected names",
        generated,
        "",
        "The built-in `workspace.protected_names`. The file tools write none of them. `workspace.open_groups` opens a",
        "group. [Files that programs may not change](../how-to/run-programs.md#files-that-programs-may-not-change)",
        "says what programs may do.",
    ]
    for group in dict.fromkeys(row.group for row in PROTECTED_TABLE):
        lines += ["", f"## `{group}`", "", "| names | why | programs |", "|---|---|---|"]
        for (reason, handling), rows in groupby(
            (row for row in PROTECTED_TABLE if row.group == group), key=lambda row: (row.reason, row.handling)
        ):
            names = ", ".join(f"`{row.pattern}`" for row in rows)
            lines.append(f"| {names} | {reason} | {_HANDLINGS[handling]} |")
    return "\n".join(lines) + "\n"


def tools_page(generated: str) -> str:
    lines = [
        "# Tools",
        generated,
        "",
        "The tools of this build. Skills add theirs under their own names, MCP servers under `SERVER.TOOL`;",
        "`palyra tools list` shows what a running daemon has, `palyra tools show NAME` the whole schemas. A tool that",
        "is *sensitive* asks a person unless policy says otherwise.",
    ]
    for spec in sorted(builtin_catalog().specs(), key=lambda spec: str(spec.name)):
        others = sorted(spec.other_tiers - {spec.tier})
        facts = [f"tier `{spec.tier.value}`", *(f"or `{tier.value}`" for tier in others)]
        facts += ["sensitive"] if spec.metadata.sensitive else []
        facts += ["idempotent"] if spec.idempotent else []
        can = ", ".join(f"`{one.value}`" for one in sorted(spec.metadata.capabilities)) or "nothing that needs a grant"
        lines += ["", f"## `{spec.name}`", "", _text(spec.description), "", f"{', '.join(facts)}; it can: {can}."]
        if rows := list(_properties(spec.input_schema)):
            lines += ["", "| argument | type | meaning |", "|---|---|---|", *rows]
    return "\n".join(lines) + "\n"


def _properties(schema: dict[str, Any]) -> Iterator[str]:
    required = schema.get("required", ())
    for name, shape in schema.get("properties", {}).items():
        meaning = _text(shape.get("description", ""))
        yield f"| `{name}`{' (required)' if name in required else ''} | {_type(shape)} | {meaning} |"


def _type(shape: dict[str, Any]) -> str:
    if "enum" in shape:
        return "one of " + ", ".join(f"`{value}`" for value in shape["enum"])
    for choice in ("anyOf", "oneOf"):
        if choice in shape:
            return " or ".join(_type(one) for one in shape[choice])
    kind = shape.get("type", "any")
    kind = " or ".join(kind) if isinstance(kind, list) else str(kind)
    return f"list of {_type(shape['items'])}" if kind == "array" and isinstance(shape.get("items"), dict) else kind


def _text(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def metrics_page(generated: str) -> str:
    lines = [
        "# Metrics",
        generated,
        "",
        "In the text form of Prometheus, without a token: of the daemon at `/metrics`, of `palyra-browserd` at its",
        "health page. Labels come from closed sets: no principal, argument, host, path or id is in one. A counter's",
        "name gets `_total` when it is read.",
    ]
    daemon = PrometheusMetrics().registry
    CallMetrics(daemon, ())
    EgressMetrics(daemon)
    for title, registry in (("The daemon", daemon), ("The browser daemon", BrowserMetrics()._registry)):
        lines += ["", f"## {title}", "", "| name | kind | labels | meaning |", "|---|---|---|---|"]
        rows = {one[0]: one for one in _collected(registry)}
        ours = {name for name in _published() if ("browser" in name) == (title != "The daemon")}
        gauges = _gauges()
        for name in sorted(ours):
            kind, labels, meaning = rows[name][1:] if name in rows else ("gauge", "", gauges[name])
            lines.append(f"| `{name}` | {kind} | {labels} | {meaning} |")
    return "\n".join(lines) + "\n"


def _published() -> set[str]:
    return {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}


def _collected(registry: CollectorRegistry) -> Iterator[tuple[str, str, str, str]]:
    for collector in list(registry._collector_to_names):
        labels = ", ".join(f"`{label}`" for label in collector._labelnames)
        yield collector._name, collector._type, labels, collector._documentation


def _gauges() -> dict[str, str]:
    """Those that are read when somebody looks: the calls that name one and say what it is."""
    found: dict[str, str] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and len(node.args) >= 2 and isinstance(node.args[0], ast.Attribute):
                said = node.args[1]
                value = getattr(names, node.args[0].attr, None)
                if isinstance(value, str) and isinstance(said, ast.Constant) and isinstance(said.value, str):
                    found[value] = said.value
    return found


_RPC = re.compile(r"rpc (\w+)\((stream )?([\w.]+)\) returns \((stream )?([\w.]+)\)")


def protos_page(generated: str) -> str:
    lines = [
        "# Protocols",
        generated,
        "",
        "gRPC between daemons, devices, workers and the browser daemon. The files are in `proto/`, each message with",
        "its comments; the code made from them is `palyra.wire`. A `→` in front of a message means a stream of them.",
    ]
    for path in sorted((ROOT / "proto").rglob("*.proto")):
        lines += [
            "",
            f"## `{path.relative_to(ROOT / 'proto').as_posix()}`",
            "",
            *_proto(path.read_text(encoding="utf-8")),
        ]
    return "\n".join(lines) + "\n"


def _proto(text: str) -> Iterator[str]:
    comment: list[str] = []
    messages: list[str] = []
    started = False
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("//"):
            comment.append(line.lstrip("/ ").rstrip())
            continue
        if line.startswith("syntax") and comment:
            yield " ".join(" ".join(comment).split())
        elif line.startswith("service "):
            yield from ("", f"### `{line.split()[1]}`", "")
            if comment:
                yield from (_text(" ".join(comment)), "")
            yield from ("| call | takes | answers | |", "|---|---|---|---|")
            started = True
        elif (rpc := _RPC.match(line)) is not None and started:
            name, up, takes, down, gives = rpc.groups()
            arrow = {True: "→ ", False: ""}
            told = _text(" ".join(comment))
            yield f"| `{name}` | {arrow[bool(up)]}`{takes}` | {arrow[bool(down)]}`{gives}` | {told} |"
        elif line.startswith("message "):
            messages.append(line.split()[1])
        comment = []
    if messages:
        yield from ("", f"Messages: {', '.join(f'`{name}`' for name in messages)}.")
