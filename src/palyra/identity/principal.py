"""Who asks: ``agent:<id>`` or ``user:<id>``, parsed once at the edge."""

import re
from enum import StrEnum
from typing import Self

import msgspec

from palyra.errors import InvalidInput
from palyra.limits import MAX_PRINCIPAL_CHARS

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@/+-]*")


class InvalidPrincipal(InvalidInput):
    code = "principal.malformed"
    hint = "write user:<id> or agent:<id>; an id starts with a letter or digit and goes on with those or . _ @ / + -"


class PrincipalKind(StrEnum):
    USER = "user"
    AGENT = "agent"


_KINDS = {kind.value: kind for kind in PrincipalKind}


class Principal(msgspec.Struct, frozen=True, order=True):
    kind: PrincipalKind
    id: str

    @classmethod
    def parse(cls, raw: str) -> Self:
        kind, colon, name = raw.partition(":")
        if len(raw) > MAX_PRINCIPAL_CHARS or not colon or kind not in _KINDS or not _ID.fullmatch(name):
            raise InvalidPrincipal(f"{raw[:MAX_PRINCIPAL_CHARS]!r} is not a principal")
        return cls(_KINDS[kind], name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}"
