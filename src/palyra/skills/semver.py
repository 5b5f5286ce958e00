"""Versions: Semantic Versioning 2.0.0 without build metadata, so that equal versions have one spelling."""

import re
from functools import total_ordering
from typing import Final, Self

import msgspec

from palyra.errors import InvalidInput

MAX_VERSION_CHARS: Final = 64
_NUMBER: Final = r"(0|[1-9][0-9]{0,8})"
_IDENTIFIER: Final = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION: Final = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_IDENTIFIER}(?:\.{_IDENTIFIER})*))?", re.ASCII)


class MalformedVersion(InvalidInput):
    code = "skill.malformed_version"
    hint = "write MAJOR.MINOR.PATCH or MAJOR.MINOR.PATCH-PRERELEASE, without build metadata"


@total_ordering
class Version(msgspec.Struct, frozen=True, eq=True):
    major: int
    minor: int
    patch: int
    prerelease: tuple[str, ...] = ()

    @classmethod
    def parse(cls, raw: str) -> Self:
        found = _VERSION.fullmatch(raw) if len(raw) <= MAX_VERSION_CHARS else None
        if found is None:
            raise MalformedVersion(f"{raw[:MAX_VERSION_CHARS]!r} is not a version such as 1.0.0")
        major, minor, patch, prerelease = found.groups()
        return cls(int(major), int(minor), int(patch), tuple(prerelease.split(".")) if prerelease else ())

    def __str__(self) -> str:
        core = f"{self.major}.{self.minor}.{self.patch}"
        return f"{core}-{'.'.join(self.prerelease)}" if self.prerelease else core

    def __lt__(self, other: object) -> bool:
        return self._order() < other._order() if isinstance(other, Version) else NotImplemented

    def _order(self) -> tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]:
        """A release comes after its prereleases; numbers before words, and by value."""
        parts = tuple((not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in self.prerelease)
        return self.major, self.minor, self.patch, not self.prerelease, parts
