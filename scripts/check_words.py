"""Find private words in the names that src and tests define: modules, classes, functions, parameters and variables.

A name is split into its words (``WaitingRoom`` and ``approval_waiters`` are the same two). Each finding is printed as
``FILE:LINE: NAME: BETTER``; the exit status is 1 if there is one. ``--count`` prints how often each word occurs and
exits with 0. Arguments name files or folders; without any, src and tests are checked.
"""

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CHECKED = ("src/palyra", "tests")

# Words, or words in a row, wherever they stand in a name.
ANYWHERE: Final[Mapping[str, str]] = {
    "desk": "service",
    "door": "listener, network, transport, entry_point",
    "doorway": "sandbox_network",
    "faces": "client_protocols",
    "asked": "authorized, requested",
    "asking": "authorizer",
    "told": "outgoing, sent, notified",
    "heard": "incoming, received",
    "hear": "on_message",
    "bell": "event",
    "keeper": "supervisor",
    "needles": "pattern_set",
    "ballast": "disk_reserve",
    "readied": "wait_until_ready",
    "freshen": "refresh",
    "let go": "release, cancel",
    "scene": "harness (real parts), peers (the other side)",
    "house": "gateway_harness, harness",
    "booked": "settlement",
    "attended": "cancel_with_caller",
    "to the end": "shield_until_done",
    "never seen": "cancelled_result",
    "gathering": "batch",
    "telling": "notify",
    "waiting room": "approval_waiters",
    "visitor": "caller",
    "speaks for": "on_behalf_of",
    "built ahead": "prewarm",
    "waiting sandbox": "prewarmed_sandbox",
    "begun sandbox": "starting_sandbox",
    "runner table": "exec_rules",
    "appearing": "protected_changes",
    "second names": "hard_links",
    "descent": "tree_walk",
    "survey": "workspace_scan",
    "quick look": "inline_io",
    "revealing": "secret_access",
    "first bytes": "protocol_sniff",
    "lease happening": "lease_event",
    "touches": "accessed_resources",
    "whoever": "caller, owner",
}
# The last words in the name of a module or a class. Elsewhere they are plain.
OF_TYPES: Final[Mapping[str, str]] = {
    "book": "registry, machine",
    "parts": "wiring, services",
    "fence": "isolation_layer (a fencing token of a lease is called fencing)",
    "fences": "isolation_layers",
    "spellings": "encodings",
}
# The last words in the name of a function.
OF_FUNCTIONS: Final[Mapping[str, str]] = {
    "shown": "to_view, render",
    "way of": "choose_backend",
}
# Names that stay, with the reason.
EXCEPTIONS: Final[Mapping[str, str]] = {
    "asked": "a key of receipts and of events of the journal",
    "touches": "a field of approvals in the API",
    "appearing_protected": "a setting",
    "heard": "a field of accepted browser profiles in the API",
    "heard_at": "a field of workers in the API",
    "StaleFence": "of a fencing token",
    "heard_ms": "a field of stored worker records",
}
# The names of tests are sentences.
_SENTENCE: Final = re.compile(r"test_\w+")
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class Kind(StrEnum):
    TYPE = "module or class"
    FUNCTION = "function"
    VARIABLE = "variable"


class Defined(NamedTuple):
    name: str
    line: int
    kind: Kind


class Finding(NamedTuple):
    path: Path
    line: int
    name: str
    word: str
    better: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.name}: {self.better}"


def names_defined_in(path: Path) -> Iterator[Defined]:
    yield Defined(path.stem.removeprefix("test_"), 1, Kind.TYPE)
    if path.name == "__init__.py":
        yield Defined(path.parent.name, 1, Kind.TYPE)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            yield Defined(node.name, node.lineno, Kind.TYPE)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Defined(node.name, node.lineno, Kind.FUNCTION)
        elif isinstance(node, ast.arg):
            yield Defined(node.arg, node.lineno, Kind.VARIABLE)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield Defined(node.id if isinstance(node, ast.Name) else node.attr, node.lineno, Kind.VARIABLE)
        elif isinstance(node, ast.alias) and node.asname:
            yield Defined(node.asname, node.lineno, Kind.VARIABLE)


def private_words_in(defined: Defined) -> Iterator[tuple[str, str]]:
    if defined.name in EXCEPTIONS or _SENTENCE.fullmatch(defined.name):
        return
    words = [word.lower() for word in _WORD.findall(defined.name)]
    spelled = f" {' '.join(words)} "
    singular = f" {' '.join(word.removesuffix('s') for word in words)} "
    for word, better in ANYWHERE.items():
        if f" {word} " in spelled or f" {word} " in singular:
            yield word, better
    endings = {Kind.TYPE: OF_TYPES, Kind.FUNCTION: OF_FUNCTIONS}.get(defined.kind, {})
    for word, better in endings.items():
        if spelled.endswith(f" {word} "):
            yield word, better


def findings_in(path: Path) -> Iterator[Finding]:
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    for defined in names_defined_in(path):
        for word, better in private_words_in(defined):
            yield Finding(name, defined.line, defined.name, word, better)


def files_in(names: Iterable[str]) -> Iterator[Path]:
    for name in names:
        place = (Path.cwd() / name).resolve()
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            if path.suffix == ".py" and "wire" not in path.parts:
                yield path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", action="store_true", help="print how often each word occurs; do not fail")
    parser.add_argument("paths", nargs="*")
    arguments = parser.parse_args()
    names = arguments.paths or [str(ROOT / name) for name in CHECKED]
    findings = sorted({finding for path in files_in(names) for finding in findings_in(path)})
    if arguments.count:
        for word, count in Counter(finding.word for finding in findings).most_common():
            print(f"{count:6}  {word}")
        print(f"{len(findings):6}  in {len({finding.path for finding in findings})} files")
        return 0
    print(*findings, sep="\n", end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
