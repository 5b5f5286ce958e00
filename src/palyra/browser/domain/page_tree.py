"""Refs of elements, and the page as a tree of roles and names that is rendered with them."""

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from palyra.browser.domain.limits import MAX_ERROR_NAME, MAX_NAMED, MAX_REFS, MAX_SHOWN_NAME, MAX_SHOWN_TEXT
from palyra.browser.domain.page_errors import UnknownRef

_REF: Final = re.compile(r"e([1-9][0-9]{0,8})")
# Two names that are less alike have nothing to do with each other.
_ALIKE: Final = 0.4


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """The element that a ref means, with its shown role and name. No other element ever has its ``number``."""

    frame_id: str
    loader_id: str
    number: int
    role: str
    name: str

    def __str__(self) -> str:
        return render_element(self.role, self.name)


class RefCounter:
    """The numbers of one session, for all of its tabs. No number is given twice."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        self._last += 1
        return self._last

    def given(self, number: int) -> bool:
        return number <= self._last


class RefRegistry:
    """The refs of one tab. The same element with the same role and name keeps its ref."""

    def __init__(self, counter: RefCounter) -> None:
        self._counter = counter
        self._bound: dict[str, Bound] = {}
        self._refs: dict[Bound, str] = {}

    def bind(self, bound: Bound) -> str:
        ref = self._refs.get(bound)
        if ref is None:
            ref = f"e{self._counter.next()}"
            if len(self._bound) >= MAX_REFS:
                oldest = next(iter(self._bound))
                del self._refs[self._bound.pop(oldest)]
            self._refs[bound] = ref
            self._bound[ref] = bound
        return ref

    def get(self, ref: str) -> Bound:
        bound = self._bound.get(ref)
        if bound is not None:
            return bound
        match = _REF.fullmatch(ref)
        if match is None:
            raise UnknownRef("a ref looks like e12")
        if self._counter.given(int(match[1])):
            raise UnknownRef(f"{ref} belongs to another tab, or to a page that is long gone", ref=ref)
        raise UnknownRef(f"{ref} was never given", ref=ref)

    def __len__(self) -> int:
        return len(self._bound)


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An element that the caller may have meant."""

    ref: str
    role: str
    name: str

    def __str__(self) -> str:
        return f"{self.ref} ({render_element(self.role, self.name)})"


def rank(wanted: str, found: Iterable[Bound]) -> list[Bound]:
    """Sort by likeness of the names: the same, one that contains the other, or one spelled nearly so."""
    scored = [(_likeness(wanted, bound.name), bound) for bound in found]
    # Sorting is stable: of two that are equally alike the first on the page stays first.
    scored.sort(key=lambda pair: -pair[0])
    return [bound for score, bound in scored if score >= _ALIKE][:MAX_NAMED]


def _likeness(wanted: str, name: str) -> float:
    ours, theirs = wanted.casefold().strip(), name.casefold().strip()
    if ours == theirs:
        return 1.0
    if not ours or not theirs:
        return 0.0
    if ours in theirs or theirs in ours:
        return 0.9
    return difflib.SequenceMatcher(None, ours[:MAX_ERROR_NAME], theirs[:MAX_ERROR_NAME]).ratio()


def render_element(role: str, name: str) -> str:
    cut = name if len(name) <= MAX_ERROR_NAME else name[: MAX_ERROR_NAME - 1] + "…"
    return f"{role} '{cut}'" if cut else role


def join_candidates(candidates: Iterable[Candidate]) -> str:
    return ", ".join(str(each) for each in candidates)


# The tree of roles and names, built from the rows that were read of each frame.

TEXT: Final = "text"
FRAME: Final = "iframe"
_INTERACTIVE: Final = (
    "button checkbox combobox gridcell link listbox menuitem menuitemcheckbox menuitemradio option radio scrollbar "
    "searchbox slider spinbutton switch tab textbox treeitem"
)
INTERACTIVE: Final = frozenset(_INTERACTIVE.split())
# Not acted on, but worth a ref to look within.
PLACES: Final = frozenset(["alertdialog", "dialog", "form", "grid", "iframe", "region", "table", "tree", "treegrid"])
# Returned as a whole when something in it matches.
UNITS: Final = frozenset(["listitem", "row", "treeitem", "option"])
# Kept as places in a list of nothing but interactive elements.
_SETTINGS: Final = frozenset(("alertdialog", "dialog", FRAME))
# These mean nothing when they are empty.
_EMPTY_MEANS_NOTHING: Final = frozenset(
    ["list", "listitem", "paragraph", "row", "rowgroup", "cell", "group", "rowheader", "generic"]
)


class PageNode(msgspec.Struct, kw_only=True):
    """One element, or a text between elements. ``number`` 0 means that it cannot get a ref."""

    frame_id: str
    loader_id: str
    number: int
    role: str
    name: str
    # The name as the page has it, before redaction.
    page_name: str = ""
    states: dict[str, str] = {}
    children: "list[PageNode]" = []
    matched: bool = False
    # The number of elements beneath that were left out because of the depth.
    beneath: int = 0

    @property
    def interactive(self) -> bool:
        return self.role in INTERACTIVE or "presses" in self.states

    @property
    def wants_ref(self) -> bool:
        return self.number > 0 and (self.interactive or self.role in PLACES or self.matched)

    @property
    def key(self) -> tuple[str, str, int, str, str]:
        return (self.frame_id, self.loader_id, self.number, self.role, self.name)

    def walk(self) -> "Iterator[PageNode]":
        yield self
        for child in self.children:
            yield from child.walk()


def grow(rows: Sequence[Sequence[Any]], frame_id: str, loader_id: str, clean: Callable[[str], str]) -> list[PageNode]:
    """Build the trees of one frame. ``clean`` removes secrets from every text before anything is cut."""
    nodes: list[PageNode] = []
    roots: list[PageNode] = []
    for parent, number, role, name, states in rows:
        node = PageNode(
            frame_id=frame_id,
            loader_id=loader_id,
            number=int(number),
            role=str(role),
            name=clean(str(name)).strip() if name else "",
            page_name=str(name),
            states={str(key): clean(str(value)) for key, value in states.items()} if states else {},
        )
        nodes.append(node)
        (nodes[parent].children if 0 <= parent < len(nodes) - 1 else roots).append(node)
    return roots


def graft(roots: list[PageNode], frames: dict[tuple[str, int], list[PageNode]]) -> None:
    for root in roots:
        for node in root.walk():
            if node.role == FRAME and not node.children:
                inner = frames.get((node.frame_id, node.number))
                if inner is not None:
                    graft(inner, frames)
                    node.children = inner


def tidy(nodes: list[PageNode]) -> list[PageNode]:
    kept = []
    for node in nodes:
        node.children = tidy(node.children)
        if node.name:
            node.children = [each for each in node.children if not (each.role == TEXT and each.name in node.name)]
            if node.interactive and all(each.role in ("img", TEXT) and not each.interactive for each in node.children):
                node.children = [each for each in node.children if each.name and each.name not in node.name]
        bare = not node.name and not node.children and not node.interactive
        if bare and (node.role in _EMPTY_MEANS_NOTHING or node.role in (TEXT, "img")):
            continue
        kept.append(node)
    return kept


def only_interactive(nodes: list[PageNode]) -> list[PageNode]:
    kept: list[PageNode] = []
    for node in nodes:
        inner = only_interactive(node.children)
        if node.interactive or (node.role in _SETTINGS and inner):
            kept.append(msgspec.structs.replace(node, children=inner))
        else:
            kept += inner
    return kept


def found(nodes: list[PageNode], wanted: str) -> tuple[list[PageNode], int]:
    looked_for = " ".join(wanted.casefold().split())
    kept: list[PageNode] = []
    count = 0
    for node in nodes:
        inner, below = found(node.children, wanted)
        if below and not (node.role in UNITS and node.number):
            count += below
            kept.append(msgspec.structs.replace(node, children=inner))
        elif below or _holds(node, looked_for):
            count += max(below, 1)
            node.matched = True
            kept.append(node)
    return kept, count


def _holds(node: PageNode, looked_for: str) -> bool:
    said = (node.name, node.states.get("value", ""), node.role if node.role != TEXT else "")
    return any(looked_for in " ".join(each.casefold().split()) for each in said)


def cut_depth(nodes: list[PageNode], depth: int) -> list[PageNode]:
    if depth <= 0:
        return []
    kept = []
    for node in nodes:
        inner = cut_depth(node.children, depth - 1)
        if not inner and node.children and not all(each.role == TEXT for each in node.children):
            node = msgspec.structs.replace(node, beneath=sum(1 for _ in node.walk()) - 1, children=[])
        elif inner:
            node = msgspec.structs.replace(node, children=inner)
        kept.append(node)
    return kept


# The tree as the indented text that agents know.

# Shown without a value when they are true.
_PLAIN: Final = frozenset(
    ["checked", "pressed", "expanded", "selected", "disabled", "required", "readonly", "focused", "filled"]
)
# The usual value, which is not rendered.
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
    """Render the trees within ``max_bytes``, and give refs to the rendered elements only.

    ``before`` has the keys of the last observation, to mark new elements. ``left_out`` elements were not even
    read.
    """
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
    """Return the text of an element that contains nothing else. It is rendered on the element's own line."""
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
    cut = _cut(_inner(value), MAX_SHOWN_NAME)
    return f' [{key}="{cut}"]' if key in _QUOTED else f" [{key}={cut}]"


def _inner(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace('"', '\\"')


def _cut(text: str, most: int) -> str:
    # A page must not be able to write a text that looks like a ref of ours.
    flat = " ".join(text.split()).replace("[ref=", "(ref=")
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def cut_bytes(text: str, max_bytes: int, mark: str) -> tuple[str, bool]:
    raw = text.encode()
    if len(raw) <= max_bytes:
        return text, False
    kept = raw[: max(0, max_bytes - len(mark.encode()))].decode(errors="ignore")
    return (kept + mark)[:max_bytes], True
