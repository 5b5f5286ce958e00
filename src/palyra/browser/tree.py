"""A page as a tree of roles and names, made of the rows that were read of each frame, and the parts asked for."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

TEXT: Final = "text"
FRAME: Final = "iframe"
INTERACTIVE: Final = frozenset(
    [
        "button",
        "checkbox",
        "combobox",
        "gridcell",
        "link",
        "listbox",
        "menuitem",
        "menuitemcheckbox",
        "menuitemradio",
        "option",
        "radio",
        "scrollbar",
        "searchbox",
        "slider",
        "spinbutton",
        "switch",
        "tab",
        "textbox",
        "treeitem",
    ]
)
# Not acted on, but worth looking within.
PLACES: Final = frozenset(["alertdialog", "dialog", "form", "grid", "iframe", "region", "table", "tree", "treegrid"])
# What is told as one thing where something in it was looked for.
UNITS: Final = frozenset(["listitem", "row", "treeitem", "option"])
# Kept as places in a list of nothing but interactive elements.
_SETTINGS: Final = frozenset(("alertdialog", "dialog", FRAME))
# What says nothing when nothing is left in it.
_EMPTY_MEANS_NOTHING: Final = frozenset(
    ["list", "listitem", "paragraph", "row", "rowgroup", "cell", "group", "rowheader", "generic"]
)


class PageNode(msgspec.Struct, kw_only=True):
    """One element, or a text between them. ``number`` 0 is none that could be named."""

    frame_id: str
    loader_id: str
    number: int
    role: str
    name: str
    # The name as the page has it, with whatever was taken out of the other.
    page_name: str = ""
    states: dict[str, str] = {}
    children: "list[PageNode]" = []
    matched: bool = False
    # Elements beneath that were left out because of the depth.
    beneath: int = 0

    @property
    def interactive(self) -> bool:
        return self.role in INTERACTIVE or "presses" in self.states

    @property
    def wants_ref(self) -> bool:
        return self.number > 0 and (self.interactive or self.role in PLACES or self.matched)

    @property
    def key(self) -> tuple[str, str, int, str, str]:
        """What makes it the same in the next observation."""
        return (self.frame_id, self.loader_id, self.number, self.role, self.name)

    def walk(self) -> "Iterator[PageNode]":
        yield self
        for child in self.children:
            yield from child.walk()


def grow(rows: Sequence[Sequence[Any]], frame_id: str, loader_id: str, clean: Callable[[str], str]) -> list[PageNode]:
    """The trees of one frame. ``clean`` takes secrets out of every text before anything is cut."""
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
    """Puts what was read of each frame into its place: the frame element, by the frame that holds it and its number."""
    for root in roots:
        for node in root.walk():
            if node.role == FRAME and not node.children:
                inner = frames.get((node.frame_id, node.number))
                if inner is not None:
                    graft(inner, frames)
                    node.children = inner


def tidy(nodes: list[PageNode]) -> list[PageNode]:
    """Without what would be said twice and what says nothing."""
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
    """Only what holds the text, each with its ancestors and all that is in it, and how many those are."""
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


def shallow(nodes: list[PageNode], depth: int) -> list[PageNode]:
    """Down to a depth; 1 is the outermost alone."""
    if depth <= 0:
        return []
    kept = []
    for node in nodes:
        inner = shallow(node.children, depth - 1)
        if not inner and node.children and not all(each.role == TEXT for each in node.children):
            node = msgspec.structs.replace(node, beneath=sum(1 for _ in node.walk()) - 1, children=[])
        elif inner:
            node = msgspec.structs.replace(node, children=inner)
        kept.append(node)
    return kept
