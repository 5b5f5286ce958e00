"""What the vault says of secrets without saying them."""

import msgspec

from palyra.vault.ref import SecretRef


class SecretInfo(msgspec.Struct, frozen=True, kw_only=True):
    """``version`` is in force; those from ``oldest_version`` on are kept."""

    ref: SecretRef
    version: int
    oldest_version: int
    created_ms: int
    updated_ms: int
    updated_by: str


class UseNote(msgspec.Struct, frozen=True, kw_only=True):
    """Who used a secret for what: everything that the journal keeps of it."""

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
    """``rewrapped`` counts what this run did; a resumed rotation had done the rest before."""

    key_id: str
    previous_key_id: str
    key_source: str
    rewrapped: int
    resumed: bool


class VaultStatus(msgspec.Struct, frozen=True, kw_only=True):
    """``waiting`` counts the versions that a rotation under way has not reached yet."""

    secrets: int
    key_id: str = ""
    key_source: str = ""
    rotating_from: str = ""
    waiting: int = 0
