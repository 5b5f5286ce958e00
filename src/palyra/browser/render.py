"""A tree as the indented text that agents know, with refs, within a number of bytes."""

from collections.abc import Callable, Collection
from typing import Final

import msgspec

from palyra.browser.page_limits import MAX_SHOWN_NAME, MAX_SHOWN_TEXT
from palyra.browser.tree import TEXT, PageNode

# Shown without a value when they are true.
_PLAIN: Final = frozenset(
    ["checked", "pressed", "expanded", "selected", "disabled", "required", "readonly", "focused", "filled"]
)
# True of most, so only the other is told.
_UNTOLD: Final = {"checked": "false", "pressed": "false"}
_QUOTED: Final = frozenset(("value", "file"))
_NOT_SHOWN: Final = frozenset(("presses", "level"))
_MARK_BYTES: Final = 200

Bind = Callable[[PageNode], str]
Key = tuple[str, str, int, str, str]


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    truncated: bool
    refs: int


def render(
    nodes: list[PageNode], bind: Bind, max_bytes: int, *, before: Collection[Key] | None = None, left_out: int = 0
) -> Rendered:
    """``before`` are the keys of the last observation, where new ones are to be marked. ``left_out`` says how many
    elements were not even read. Refs are given to what is shown and to nothing else."""
    lines: list[str] = []
    used = refs = missing = 0
    room = max(0, max_bytes - _MARK_BYTES)
    stack = [(node, 0) for node in reversed(nodes)]
    while stack:
        node, depth = stack.pop()
        alone = _only_text(node)
        if not missing:
            ref = bind(node) if node.wants_ref else ""
            line = _line(node, depth, ref, alone, before is not None and node.key not in before)
            size = len(line.encode()) + 1
            if used + size <= room:
                lines.append(line)
                used += size
                refs += bool(ref)
            else:
                missing = 1
        else:
            missing += 1
        if not alone:
            stack.extend((child, depth + 1) for child in reversed(node.children))
    missing += left_out
    if missing:
        lines.append(
            f"… {missing} more are not shown: look within a ref, use find or interactive_only, or raise max_bytes"
        )
    return Rendered(text="\n".join(lines), truncated=missing > 0, refs=refs)


def _only_text(node: PageNode) -> str:
    """The text of an element that has nothing but one text in it: told on the element's own line."""
    if len(node.children) == 1 and node.children[0].role == TEXT:
        return node.children[0].name
    return ""


def _line(node: PageNode, depth: int, ref: str, text: str, new: bool) -> str:
    parts = [f"{'  ' * depth}- "]
    if node.role == TEXT:
        parts.append(f"text: {_cut(node.name, MAX_SHOWN_TEXT)}")
    else:
        parts.append(node.role)
        if node.name:
            parts.append(f' "{_cut(_inner(node.name), MAX_SHOWN_NAME)}"')
        if "level" in node.states:
            parts.append(f" [level={_inner(node.states['level'])}]")
        if ref:
            parts.append(f" [ref={ref}]")
        parts += [_state(key, value) for key, value in node.states.items() if key not in _NOT_SHOWN]
        if node.beneath:
            parts.append(f" [{node.beneath} within]")
    if new:
        parts.append(" [new]")
    if text:
        parts.append(f": {_cut(text, MAX_SHOWN_TEXT)}")
    return "".join(parts)


def _state(key: str, value: str) -> str:
    if key in _PLAIN and value == "true":
        return f" [{key}]"
    if _UNTOLD.get(key) == value:
        return ""
    shown = _cut(_inner(value), MAX_SHOWN_NAME)
    return f' [{key}="{shown}"]' if key in _QUOTED else f" [{key}={shown}]"


def _inner(text: str) -> str:
    """Within quotes: those of the page are marked as such."""
    return " ".join(text.split()).replace("\\", "\\\\").replace('"', '\\"')


def _cut(text: str, most: int) -> str:
    # A page must not be able to write what looks like a ref of ours.
    flat = " ".join(text.split()).replace("[ref=", "(ref=")
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def cut_bytes(text: str, max_bytes: int, mark: str) -> tuple[str, bool]:
    """The beginning of a text, with a mark where something is missing."""
    raw = text.encode()
    if len(raw) <= max_bytes:
        return text, False
    kept = raw[: max(0, max_bytes - len(mark.encode()))].decode(errors="ignore")
    return (kept + mark)[:max_bytes], True
