"""Find phrases that are not plain English in what people read: comments, docstrings, messages and pages.

Each finding is printed as ``FILE:LINE: PHRASE: BETTER``; the exit status is 1 if there is one. ``--count`` prints how
often each phrase occurs and exits with 0. Arguments name files or folders; without any, everything is checked.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CHECKED = (
    "src/palyra",
    "proto",
    "docs",
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "SPECIFICATION.md",
    "AGENTS.md",
)
# Text of these reaches people as it is.
TEXT_SUFFIXES = frozenset((".md", ".html", ".cedar", ".cedarschema", ".wit", ".proto"))


class Where(StrEnum):
    PROSE = "prose"
    # The first words of a docstring.
    DOCSTRING = "docstring"


class Phrase(NamedTuple):
    """``pattern`` has one space for any white space. ``better`` names the words to choose from, or the reason."""

    pattern: str
    better: str
    where: Where = Where.PROSE


PHRASES = (
    # Who does what is lost in the passive of these verbs.
    Phrase(r"told(?! apart)", "sent, notified, stated: name the sender, the receiver and the message"),
    Phrase(r"(?:is|are|was|were|be|been) said", "state, report, print"),
    Phrase(r"heard", "received"),
    Phrase(r"(?:is|are|was|were) met (?:as|where|with|in|like)\b", "handle, occur"),
    Phrase(r"readied", "prepared; wait until ready"),
    Phrase(r"freshen\w*", "refresh"),
    Phrase(r"(?:let|lets|letting) go\b", "release, cancel"),
    Phrase(r"(?:speak|speaks|spoke) for", "act on behalf of"),
    # A clause in the place of a noun.
    Phrase(r"(?:Who|Whoever|Whose|What|Whatever)\b", "begin with a verb (function) or a noun (class)", Where.DOCSTRING),
    Phrase(r"whoever", "the caller, the owner, any process: name it"),
    Phrase(r"what is there", "the existing file, the present state: name it"),
    # Not English.
    Phrase(r"(?<!there\s)(?:is|are|was|were|be) (?-i:none)", "no X exists; is not an X; is absent"),
    Phrase(
        r"(?:that|which|it|this) (?:is|are|was|were) no(?= [a-z])"
        r"(?! (?:more|longer|better|less|reason|matter|use|way))",
        "is not a",
    ),
    Phrase(r"where (?:there is |there are )?none", "if no X exists, if none is running"),
    Phrase(r"anew", "again"),
    Phrase(r"(?:leave|leaves|left|leaving)(?: \w+)? away", "omit, remove"),
    Phrase(r"(?:made|built|done|kept|judged|read|written) ahead\b(?! of)", "in advance; prewarmed, cached"),
    Phrase(r"knows? no\b", "does not know, does not depend on"),
    Phrase(r"(?:can|could|cannot|to|may) be had", "available"),
    Phrase(r"belongs? into", "belongs in"),
    Phrase(r"as (?:it|they) must be", "correct, as expected"),
    Phrase(r"as (?:it|they) (?:stands?|lies?) there", "unchanged"),
    Phrase(r"(?:a|the|one|no|each|this|that|every|his|her|person's|its) yes\b", "approval, consent"),
    # Private metaphors.
    Phrase(r"ways? out\b", "egress, exit"),
    Phrase(r"doors?|doorways?", "listener, interface, entry point"),
    Phrase(r"house rules?", "conventions"),
    Phrase(r"rooms|(?:a|the|its|each|every|one|new|own|same) room(?! (?:for|to|left|in))", "package (of code)"),
    Phrase(r"desks?", "service"),
    Phrase(r"bells?", "event, notification"),
    Phrase(r"ballast", "disk reserve"),
    Phrase(r"needles?", "pattern"),
    Phrase(r"keepers?", "supervisor"),
    Phrase(r"scenes?", "harness, peers"),
)
# Where a phrase is right, by file and phrase: what the text must show or quote.
EXCEPTIONS: tuple[tuple[str, str, str], ...] = (
    (
        "*/console/templates/policy.html",
        r"(?:a|the|one|no|each|this|that|every|his|her|person's|its) yes\b",
        "two options of a list",
    ),
    ("*/node_person.py", "bells?", "the bell of a terminal"),
    ("docs/decisions/*.md", "ballast", "a record says what things were called when it was written"),
)
_COMPILED = tuple(
    (phrase, re.compile(rf"(?<![\w.-])(?:{phrase.pattern})(?![\w-])".replace(" ", r"[\s]+"), re.IGNORECASE))
    for phrase in PHRASES
)
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
# Code within prose, addresses of links, tags and comments of HTML, names with a dot or an underscore.
_CODE = re.compile(r"``[^`]+``|`[^`]+`|\]\([^)]*\)|<[a-z!/][^>]*>|\{[{%].*?[%}]\}|\w+://\S+")


class Text(NamedTuple):
    line: int
    text: str
    docstring: bool = False


class Finding(NamedTuple):
    path: Path
    line: int
    found: str
    phrase: Phrase

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.found}: {self.phrase.better}"


def texts_of_python(source: str) -> Iterator[Text]:
    """Give comments, docstrings and those string literals that are sentences. Names are another script's."""
    yield from _comments(source)
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node) is not None
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield Text(node.lineno, node.value, id(node) in docstrings)


def _comments(source: str) -> Iterator[Text]:
    """Give each block of comments as one text: a phrase may go on in the next line."""
    first, last, lines = 0, 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if lines and token.start[0] != last + 1:
                yield Text(first, "\n".join(lines))
                lines = []
            first = first if lines else token.start[0]
            last = token.start[0]
            lines.append(token.string.removeprefix("#"))
    if lines:
        yield Text(first, "\n".join(lines))


def texts_of(path: Path) -> Iterable[Text]:
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return texts_of_python(source)
    if path.suffix == ".proto":
        # A stop in the place of code keeps phrases from running across it.
        return (Text(1, "\n".join(line.partition("//")[2] or "." for line in source.splitlines())),)
    # What a script wrote is mended where the script reads it.
    if re.search(r"<!-- Written by scripts/", source[:1000]):
        return ()
    return (Text(1, _FENCE.sub(_blank, source)),)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def findings_in(path: Path) -> Iterator[Finding]:
    name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
    for line, text, docstring in texts_of(path):
        prose = _CODE.sub(_blank, text)
        for phrase, pattern in _COMPILED:
            if any(fnmatch(name, file) and phrase.pattern == excepted for file, excepted, _ in EXCEPTIONS):
                continue
            if phrase.where is Where.DOCSTRING:
                start = re.match(r"\s*", prose)
                found = [pattern.match(prose, start.end() if start else 0)] if docstring else []
            else:
                found = list(pattern.finditer(prose))
            for match in filter(None, found):
                place = line + prose.count("\n", 0, match.start())
                yield Finding(Path(name), place, " ".join(match[0].split()), phrase)


def files_in(names: Iterable[str]) -> Iterator[Path]:
    for name in names:
        place = (Path.cwd() / name).resolve()
        found = [place] if place.is_file() else sorted(place.rglob("*"))
        for path in found:
            generated = "wire" in path.parts or "__pycache__" in path.parts
            if path.is_file() and not generated and (path.suffix == ".py" or path.suffix in TEXT_SUFFIXES):
                yield path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", action="store_true", help="print how often each phrase occurs; do not fail")
    parser.add_argument("paths", nargs="*")
    arguments = parser.parse_args()
    names = arguments.paths or [str(ROOT / name) for name in CHECKED]
    findings = sorted({finding for path in files_in(names) for finding in findings_in(path)})
    if arguments.count:
        for pattern, count in Counter(finding.phrase.pattern for finding in findings).most_common():
            print(f"{count:6}  {pattern}")
        print(f"{len(findings):6}  in {len({finding.path for finding in findings})} files")
        return 0
    print(*findings, sep="\n", end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
