"""Bundle: everything that a decision depends on besides the request, with one digest over all of it."""

import hashlib
from collections.abc import Iterator
from typing import Any, Final, Self

import msgspec

from palyra.errors import InvalidInput
from palyra.policy.decision import Obligations
from palyra.policy.limits import MAX_SHOWN_SOURCE_CHARS
from palyra.policy.request import EntityDirectory, EntityRef
from palyra.visible_text import is_visible

# Cedar's messages have no position: here an offset into a named text becomes a file, a line, a column and a caret.

_TAB = "\t"


class Location(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Lines and columns count from 1; columns count characters."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Problem(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One fault of a bundle. ``source`` is its whole line."""

    file: str
    line: int
    column: int
    message: str
    source: str = ""
    policy: str = ""

    @property
    def location(self) -> Location:
        return Location(file=self.file, line=self.line, column=self.column)

    def render(self) -> str:
        heading = f"{self.location}: {self.message}"
        if not self.source:
            return heading
        shown, caret = _window(self.source, self.column - 1)
        number = str(self.line)
        margin = " " * len(number)
        padding = "".join(_TAB if character == _TAB else " " for character in shown[:caret])
        return f"{heading}\n  {number} | {shown}\n  {margin} | {padding}^"


class SourceText(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    text: str

    def locate(self, offset: int) -> Location:
        before = self.text[:offset]
        line_start = before.rfind("\n") + 1
        return Location(file=self.name, line=before.count("\n") + 1, column=offset - line_start + 1)

    def line_at(self, offset: int) -> str:
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        return self.text[start : end if end >= 0 else len(self.text)].rstrip("\r")

    def problem(self, offset: int, message: str, *, policy: str = "") -> Problem:
        place = self.locate(offset)
        return Problem(
            file=place.file,
            line=place.line,
            column=place.column,
            message=message,
            source=self.line_at(offset),
            policy=policy,
        )


def _window(source: str, caret: int) -> tuple[str, int]:
    """Cut a long line around the caret. Return the part, without unprintable characters, and the caret in it."""
    start = max(0, min(caret - MAX_SHOWN_SOURCE_CHARS // 2, len(source) - MAX_SHOWN_SOURCE_CHARS))
    part = source[start : start + MAX_SHOWN_SOURCE_CHARS]
    shown = "".join(c if c == _TAB or is_visible(c) else "\N{REPLACEMENT CHARACTER}" for c in part)
    return shown, min(caret - start, len(shown))


_DIGEST_DOMAIN: Final = b"palyra.policy.bundle.v1"
SCHEMA_NAME: Final = "palyra.cedarschema"


class BadBundle(InvalidInput):
    """All problems found, each with its place. The bundle is not used."""

    code = "policy.bundle_invalid"
    hint = "correct the places shown; the policies in force before stay in force"

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        first = problems[0]
        super().__init__(
            f"the policies have {_count_problems(problems)}: {first.location}: {first.message}",
            problems=[msgspec.to_builtins(problem) for problem in problems],
        )
        self.problems = problems

    def diagnostics(self) -> str:
        shown = "\n\n".join(problem.render() for problem in self.problems)
        return f"{_count_problems(self.problems)}\n\n{shown}\n\n  code: {self.code}\n  hint: {self.hint}"


def _count_problems(problems: tuple[Problem, ...]) -> str:
    return f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """An unchecked bundle: ``CedarEngine`` checks it."""

    schema: str
    files: tuple[tuple[str, str], ...]
    directory: EntityDirectory = EntityDirectory()
    schema_name: str = SCHEMA_NAME

    @property
    def digest(self) -> str:
        """Return the SHA-256 over a versioned encoding in which a length precedes every part."""
        hasher = hashlib.sha256()
        for part in self._parts():
            hasher.update(len(part).to_bytes(8, "big"))
            hasher.update(part)
        return hasher.hexdigest()

    def sources(self) -> Iterator[SourceText]:
        for name, text in self.files:
            yield SourceText(name=name, text=text)

    def _parts(self) -> Iterator[bytes]:
        yield _DIGEST_DOMAIN
        yield self.schema.encode()
        yield _count(len(self.files))
        for name, text in self.files:
            yield name.encode()
            yield text.encode()
        for sets in (self.directory.groups, self.directory.tool_sets, self.directory.channel_sets):
            yield _count(len(sets))
            for title in sorted(sets):
                yield title.encode()
                yield _count(len(sets[title]))
                for pattern in sets[title]:
                    yield pattern.encode()


def _count(number: int) -> bytes:
    return number.to_bytes(8, "big")


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Values that a policy's head fixes with ``==``. None stands for anything else: all, ``in``, ``is``."""

    principal: EntityRef | None = None
    action: str | None = None
    resource: EntityRef | None = None

    @classmethod
    def from_cedar_json(cls, policy: dict[str, Any]) -> Self:
        action = _exact(policy["action"])
        return cls(
            principal=_exact(policy["principal"]),
            action=action.id if action is not None and action.type == "Action" else None,
            resource=_exact(policy["resource"]),
        )


def _exact(constraint: dict[str, Any]) -> EntityRef | None:
    entity = constraint.get("entity") if constraint.get("op") == "==" else None
    if not isinstance(entity, dict) or entity.keys() != {"type", "id"}:
        return None
    return EntityRef(entity["type"], entity["id"])


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """One checked policy, as written."""

    id: str
    effect: str
    location: Location
    text: str
    scope: Scope
    obligations: Obligations = Obligations()
