"""References of secrets, ``scope/key``, and the vault's reports, which hold no value.

The scope limits the users of a secret: all whom policy lets (``global``), one principal (``principal:agent:bot``),
calls through one channel (``channel:mcp``), or one skill (``skill:acme.github``).
"""

import re
from enum import StrEnum
from typing import Final, Self

import msgspec

from palyra.errors import InvalidInput, PalyraError
from palyra.ids import Principal
from palyra.vault.limits import MAX_KEY_CHARS, MAX_REF_CHARS

_OWNER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+-]*")
_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class InvalidSecretRef(InvalidInput):
    code = "vault.invalid_ref"
    hint = (
        "write global/KEY, principal:agent:NAME/KEY, channel:NAME/KEY or skill:ID/KEY; "
        "a key has letters, digits and . _ -"
    )


class ScopeKind(StrEnum):
    GLOBAL = "global"
    PRINCIPAL = "principal"
    CHANNEL = "channel"
    SKILL = "skill"


class SecretScope(msgspec.Struct, frozen=True, order=True):
    """``owner`` is empty for the global scope and names the one principal, channel or skill for the others."""

    kind: ScopeKind
    owner: str = ""

    @classmethod
    def parse(cls, raw: str) -> Self:
        if raw == ScopeKind.GLOBAL:
            return cls(ScopeKind.GLOBAL)
        word, colon, owner = raw.partition(":")
        owned = {kind.value for kind in ScopeKind} - {ScopeKind.GLOBAL.value}
        # A name with such a part means another name where names are used as paths.
        odd = any(part in ("", ".", "..") for part in owner.split("/"))
        if not colon or word not in owned or len(raw) > MAX_REF_CHARS or odd or not _OWNER.fullmatch(owner):
            raise InvalidSecretRef(f"{raw[:MAX_REF_CHARS]!r} is not a scope")
        kind = ScopeKind(word)
        if kind is ScopeKind.PRINCIPAL:
            try:
                Principal.parse(owner)
            except PalyraError as error:
                raise InvalidSecretRef(f"{raw[:MAX_REF_CHARS]!r} is not a scope: {error.message}") from error
        return cls(kind, owner)

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.owner}" if self.owner else self.kind.value


class SecretRef(msgspec.Struct, frozen=True, order=True):
    """A scope and a key. The last slash separates them: a key has no slash, a principal's name may."""

    scope: SecretScope
    key: str

    @classmethod
    def parse(cls, raw: str) -> Self:
        scope, slash, key = raw.rpartition("/")
        if len(raw) > MAX_REF_CHARS or not slash or len(key) > MAX_KEY_CHARS or not _KEY.fullmatch(key):
            raise InvalidSecretRef(f"{raw[:MAX_REF_CHARS]!r} does not name a secret")
        return cls(SecretScope.parse(scope), key)

    def __str__(self) -> str:
        return f"{self.scope}/{self.key}"


class SecretInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A secret's versions: ``version`` is in force; those from ``oldest_version`` on are kept."""

    ref: SecretRef
    version: int
    oldest_version: int
    created_ms: int
    updated_ms: int
    updated_by: str


class UseNote(msgspec.Struct, frozen=True, kw_only=True):
    actor: str
    principal: str = ""
    run: str = ""
    call: str = ""
    purpose: str = "use"
    channel: str = ""
    tool: str = ""
    skill: str = ""
    host: str = ""
    policies: tuple[str, ...] = ()
    bundle_digest: str = ""


class RotationReport(msgspec.Struct, frozen=True, kw_only=True):
    """Report of a rotation. ``rewrapped`` counts this run only; a resumed rotation had done the rest before."""

    key_id: str
    previous_key_id: str
    key_source: str
    rewrapped: int
    resumed: bool


class VaultStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of the vault. ``waiting`` counts the versions that a rotation has not reached yet."""

    secrets: int
    key_id: str = ""
    key_source: str = ""
    rotating_from: str = ""
    waiting: int = 0
