"""The tables of the console: answers by Idempotency-Key, and web sessions by the hash of their secret.

Sessions outlive a restart of the daemon, and a copy of the database admits nobody.
"""

import hashlib
import re
import secrets
from typing import Any

import msgspec

from palyra.identity.api_tokens import TokenRecord, Unauthenticated, read_token
from palyra.ids import Ulid
from palyra.secret import Secret
from palyra.server.console.errors import BadIdempotencyKey, KeyInUse, KeyReused
from palyra.server.console.limits import (
    IDEMPOTENCY_MS,
    KEYS_REMOVED_AT_ONCE,
    MAX_IDEMPOTENCY_KEY_CHARS,
    MAX_SESSIONS,
    SESSION_SECRET_BYTES,
)
from palyra.server.console.security import ConsoleSession, SessionSecret
from palyra.store.event import NewEvent
from palyra.store.port import Store, Transaction

_KEY = re.compile(rf"[!-~]{{1,{MAX_IDEMPOTENCY_KEY_CHARS}}}")
_UNANSWERED = 0


class WriteKey(msgspec.Struct, frozen=True, kw_only=True):
    """``request_sha256`` covers method, path and body: the same key for anything else is a mistake."""

    principal: str
    key: str
    request_sha256: str


class KeptAnswer(msgspec.Struct, frozen=True):
    status: int
    body: bytes


def write_key(principal: str, key: str, method: str, path: str, body: Any) -> WriteKey:
    if not _KEY.fullmatch(key):
        raise BadIdempotencyKey("the Idempotency-Key is empty, too long or not plain text")
    whole = msgspec.json.encode([method, path, body], order="sorted")
    return WriteKey(principal=principal, key=key, request_sha256=hashlib.sha256(whole).hexdigest())


def claim(tx: Transaction, key: WriteKey) -> KeptAnswer | None:
    """Return the earlier answer to this key, or None for the first request with it."""
    tx.execute(
        "DELETE FROM console_requests WHERE (principal, key) IN"
        " (SELECT principal, key FROM console_requests WHERE asked_ms <= ? ORDER BY asked_ms LIMIT ?)",
        (tx.now_ms - IDEMPOTENCY_MS, KEYS_REMOVED_AT_ONCE),
    )
    rows = tx.execute(
        "SELECT request_sha256, status, answer FROM console_requests WHERE principal = ? AND key = ?",
        (key.principal, key.key),
    )
    if not rows:
        tx.execute(
            "INSERT INTO console_requests VALUES (?, ?, ?, ?, ?, ?)",
            (key.principal, key.key, key.request_sha256, tx.now_ms, _UNANSWERED, b""),
        )
        return None
    request_sha256, status, body = rows[0]
    if request_sha256 != key.request_sha256:
        raise KeyReused("this Idempotency-Key belongs to another request")
    if status == _UNANSWERED:
        raise KeyInUse("the first request with this Idempotency-Key has no answer yet")
    return KeptAnswer(status, body)


def keep_answer(tx: Transaction, key: WriteKey, kept: KeptAnswer) -> None:
    tx.execute(
        "UPDATE console_requests SET status = ?, answer = ? WHERE principal = ? AND key = ?",
        (kept.status, kept.body, key.principal, key.key),
    )


SCHEMA = (
    """CREATE TABLE IF NOT EXISTS console_sessions (
        secret_sha256 TEXT PRIMARY KEY, used_ms INTEGER NOT NULL, record BLOB NOT NULL) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS console_sessions_used ON console_sessions (used_ms)",
    """CREATE TABLE IF NOT EXISTS console_requests (
        principal TEXT NOT NULL, key TEXT NOT NULL, request_sha256 TEXT NOT NULL, asked_ms INTEGER NOT NULL,
        status INTEGER NOT NULL, answer BLOB NOT NULL, PRIMARY KEY (principal, key)) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS console_requests_asked ON console_requests (asked_ms)",
)


_decode = msgspec.json.Decoder(ConsoleSession)


def open_session(tx: Transaction, token: TokenRecord, role: str) -> SessionSecret:
    """Open a session with a new secret. A secret that the browser sent is never used."""
    secret = SessionSecret(Secret(secrets.token_urlsafe(SESSION_SECRET_BYTES)))
    session = ConsoleSession(
        id=str(Ulid.new()),
        token_id=token.token_id,
        principal=token.principal,
        created_ms=tx.now_ms,
        used_ms=tx.now_ms,
    )
    tx.execute(
        "DELETE FROM console_sessions WHERE secret_sha256 IN"
        " (SELECT secret_sha256 FROM console_sessions ORDER BY used_ms DESC LIMIT -1 OFFSET ?)",
        (MAX_SESSIONS - 1,),
    )
    tx.execute(
        "INSERT INTO console_sessions VALUES (?, ?, ?)", (secret.digest(), tx.now_ms, msgspec.json.encode(session))
    )
    tx.append(_event("console.logged_in", session, token_id=token.token_id, role=role))
    return secret


def find_session(store: Store, secret: SessionSecret, now_ms: int) -> ConsoleSession | None:
    """Return the session, or None if it does not exist. Raise if it is over."""
    rows = store.read("SELECT record FROM console_sessions WHERE secret_sha256 = ?", (secret.digest(),))
    if not rows:
        return None
    session = _decode.decode(rows[0][0])
    session.check(now_ms)
    return session


def token_of(store: Store, session: ConsoleSession, now_ms: int) -> TokenRecord:
    """Return the token of the session. Raise if it was revoked or has expired: that ends its sessions."""
    record = read_token(store, session.token_id)
    if record is None or record.revoked_ms is not None:
        raise Unauthenticated("the token of this session was revoked")
    if record.expires_ms is not None and now_ms >= record.expires_ms:
        raise Unauthenticated("the token of this session has expired")
    return record


def note_use(tx: Transaction, secret: SessionSecret) -> None:
    rows = tx.execute("SELECT record FROM console_sessions WHERE secret_sha256 = ?", (secret.digest(),))
    if rows:
        session = msgspec.structs.replace(_decode.decode(rows[0][0]), used_ms=tx.now_ms)
        tx.execute(
            "UPDATE console_sessions SET used_ms = ?, record = ? WHERE secret_sha256 = ?",
            (tx.now_ms, msgspec.json.encode(session), secret.digest()),
        )


def end_session(tx: Transaction, secret: SessionSecret) -> None:
    rows = tx.execute("SELECT record FROM console_sessions WHERE secret_sha256 = ?", (secret.digest(),))
    if rows:
        tx.execute("DELETE FROM console_sessions WHERE secret_sha256 = ?", (secret.digest(),))
        tx.append(_event("console.logged_out", _decode.decode(rows[0][0])))


def _event(kind: str, session: ConsoleSession, **payload: str) -> NewEvent:
    return NewEvent(kind=kind, actor=session.principal, payload={"session": session.id, **payload})
