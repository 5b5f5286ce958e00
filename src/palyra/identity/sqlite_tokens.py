"""API tokens in SQL, each change with its journal entry."""

import secrets
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from palyra.identity.api_token import SECRET_BYTES, ApiToken, TokenRecord, TokenScope, UnknownToken, check_token
from palyra.identity.principal import Principal
from palyra.ids import TokenId
from palyra.journal.event import Event, NewEvent
from palyra.secret import Secret

_decode = msgspec.json.Decoder(TokenRecord)


class Transaction(Protocol):
    @property
    def now_ms(self) -> int: ...

    def append(self, event: NewEvent) -> Event: ...

    def execute(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...


class Reader(Protocol):
    def read(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...


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
    """The record, and the token itself, which nobody can read again afterwards."""
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
