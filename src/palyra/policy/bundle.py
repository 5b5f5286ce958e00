"""A bundle: everything a decision depends on besides the request, with one digest over all of it."""

import hashlib
from collections.abc import Iterator
from typing import Any, Final, Self

import msgspec

from palyra.errors import InvalidInput
from palyra.policy.entities import EntityDirectory, EntityRef
from palyra.policy.obligations import Obligations
from palyra.policy.positions import Location, Problem, SourceText

_DIGEST_DOMAIN: Final = b"palyra.policy.bundle.v1"
SCHEMA_NAME: Final = "palyra.cedarschema"


class BadBundle(InvalidInput):
    """Every problem found, each with its place. The bundle is not used."""

    code = "policy.bundle_invalid"
    hint = "correct the places shown; the policies in force before stay in force"

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        first = problems[0]
        super().__init__(
            f"the policies have {_counted(problems)}: {first.location}: {first.message}",
            problems=[msgspec.to_builtins(problem) for problem in problems],
        )
        self.problems = problems

    def diagnostics(self) -> str:
        shown = "\n\n".join(problem.render() for problem in self.problems)
        return f"{_counted(self.problems)}\n\n{shown}\n\n  code: {self.code}\n  hint: {self.hint}"


def _counted(problems: tuple[Problem, ...]) -> str:
    return f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """Not yet checked: making an engine of it does that."""

    schema: str
    files: tuple[tuple[str, str], ...]
    directory: EntityDirectory = EntityDirectory()
    schema_name: str = SCHEMA_NAME

    @property
    def digest(self) -> str:
        """SHA-256 over a versioned encoding in which every part is preceded by its length."""
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
    """What a policy's head fixes with ``==``. None stands for anything else: all, ``in``, ``is``."""

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
