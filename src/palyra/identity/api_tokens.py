"""API tokens: a random secret bound to a principal. Only its hash is kept."""

import hashlib
import re
import secrets
from enum import StrEnum
from typing import Self

import msgspec

from palyra.errors import Denied, InvalidInput
from palyra.ids import Principal, TokenId
from palyra.secret import Secret
from palyra.store.event import NewEvent
from palyra.store.port import Reader, Transaction

_TOKEN = re.compile(r"plr_([0-7][0-9A-HJKMNP-TV-Z]{25})_([A-Za-z0-9_-]{43})")
SECRET_BYTES = 32


class Unauthenticated(Denied):
    """The one answer for every bad token: wrong, revoked, expired and malformed look the same from outside."""

    code = "token.rejected"
    hint = "send `Authorization: Bearer TOKEN`; make one with `palyra token create --principal agent:NAME`"
    http_status = 401


class ScopeMissing(Denied):
    code = "token.scope_missing"
    hint = "make a token that has the scope, with `palyra token create --scope`"


class UnknownToken(InvalidInput):
    code = "token.unknown"
    hint = "`palyra token list` shows the tokens there are"
    http_status = 404


class TokenScope(StrEnum):
    CALL = "call"
    """Make calls and see one's own."""
    OPERATE = "operate"
    """Decide approvals, manage tokens, act for another principal: as far as policy lets the token's principal."""


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True):
    token_id: str
    secret_sha256: str
    principal: str
    scopes: tuple[TokenScope, ...]
    label: str = ""
    run_id: str = ""
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None

    def require(self, scope: TokenScope) -> None:
        if scope not in self.scopes:
            raise ScopeMissing(f"this token lacks the scope {scope.value}", scope=scope.value)


class ApiToken(msgspec.Struct, frozen=True):
    """A token as its holder has it."""

    token_id: TokenId
    secret: Secret

    @classmethod
    def parse(cls, raw: str) -> Self:
        match = _TOKEN.fullmatch(raw)
        if match is None:
            raise Unauthenticated("the token is not accepted")
        return cls(TokenId(match[1]), Secret(match[2]))

    def text(self) -> Secret:
        return Secret(f"plr_{self.token_id}_{self.secret.reveal()}")

    def secret_sha256(self) -> str:
        return hashlib.sha256(self.secret.reveal().encode()).hexdigest()


def check_token(token: ApiToken, record: TokenRecord | None, now_ms: int) -> TokenRecord:
    """Return the record if the token is good now.

    The secret is compared even without a record, so that timing reveals nothing."""
    expected = Secret(record.secret_sha256 if record is not None else "0" * 64)
    right = expected.matches(token.secret_sha256())
    if (
        record is None
        or not right
        or record.revoked_ms is not None
        or (record.expires_ms is not None and now_ms >= record.expires_ms)
    ):
        raise Unauthenticated("the token is not accepted")
    return record


# API tokens in SQL, each change with its journal entry.

_decode = msgspec.json.Decoder(TokenRecord)


def create_token(
    tx: Transaction,
    principal: Principal,
    scopes: tuple[TokenScope, ...],
    *,
    actor: str,
    label: str = "",
    run_id: str = "",
    ttl_ms: int | None = None,
) -> tuple[TokenRecord, Secret]:
    """Make a token. The result is its record, and the token, which nobody can read again afterwards."""
    token = ApiToken(TokenId.new(), Secret(secrets.token_urlsafe(SECRET_BYTES)))
    record = TokenRecord(
        token_id=str(token.token_id),
        secret_sha256=token.secret_sha256(),
        principal=str(principal),
        scopes=scopes,
        label=label,
        run_id=run_id,
        created_ms=tx.now_ms,
        expires_ms=None if ttl_ms is None else tx.now_ms + ttl_ms,
    )
    tx.execute("INSERT INTO api_tokens VALUES (?, ?)", (record.token_id, msgspec.json.encode(record)))
    tx.append(_event("credential.created", actor, record))
    return record, token.text()


def revoke_token(tx: Transaction, token_id: TokenId, *, actor: str) -> TokenRecord:
    rows = tx.execute("SELECT record FROM api_tokens WHERE token_id = ?", (token_id,))
    if not rows:
        raise UnknownToken(f"there is no token {token_id}")
    record = _decode.decode(rows[0][0])
    if record.revoked_ms is None:
        record = msgspec.structs.replace(record, revoked_ms=tx.now_ms)
        tx.execute("UPDATE api_tokens SET record = ? WHERE token_id = ?", (msgspec.json.encode(record), token_id))
        tx.append(_event("credential.revoked", actor, record))
    return record


def list_tokens(reader: Reader) -> list[TokenRecord]:
    return [_decode.decode(row[0]) for row in reader.read("SELECT record FROM api_tokens ORDER BY token_id")]


def read_token(reader: Reader, token_id: str) -> TokenRecord | None:
    rows = reader.read("SELECT record FROM api_tokens WHERE token_id = ?", (token_id,))
    return _decode.decode(rows[0][0]) if rows else None


def authenticate(reader: Reader, raw: str, now_ms: int) -> TokenRecord:
    token = ApiToken.parse(raw)
    return check_token(token, read_token(reader, token.token_id), now_ms)


def _event(kind: str, actor: str, record: TokenRecord) -> NewEvent:
    shown = {"id": record.token_id, "scopes": list(record.scopes), "label": record.label, "run_id": record.run_id}
    return NewEvent(kind=kind, actor=actor, principal=record.principal, payload=shown)
