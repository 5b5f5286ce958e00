"""Web sessions in SQL, by the hash of their secret: they outlive a restart of the daemon, and no copy of the database
lets anybody in."""

import secrets

import msgspec

from palyra.console.limits import MAX_SESSIONS, SESSION_SECRET_BYTES
from palyra.console.session import ConsoleSession, SessionSecret
from palyra.identity.api_token import TokenRecord, Unauthenticated
from palyra.identity.sqlite_tokens import read_token
from palyra.ids import Ulid
from palyra.journal.event import NewEvent
from palyra.secret import Secret
from palyra.tools.ports import Store, Transaction

_decode = msgspec.json.Decoder(ConsoleSession)


def open_session(tx: Transaction, token: TokenRecord, role: str) -> SessionSecret:
    """A new session, always with a secret of its own making: what a browser came with is never taken up."""
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
    """None when there is none; a session that is over raises."""
    rows = store.read("SELECT record FROM console_sessions WHERE secret_sha256 = ?", (secret.digest(),))
    if not rows:
        return None
    session = _decode.decode(rows[0][0])
    session.check(now_ms)
    return session


def token_of(store: Store, session: ConsoleSession, now_ms: int) -> TokenRecord:
    """The token that was logged in with, if it is still good: revoking it ends its sessions."""
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
    """A session that is not there is ended already."""
    rows = tx.execute("SELECT record FROM console_sessions WHERE secret_sha256 = ?", (secret.digest(),))
    if rows:
        tx.execute("DELETE FROM console_sessions WHERE secret_sha256 = ?", (secret.digest(),))
        tx.append(_event("console.logged_out", _decode.decode(rows[0][0])))


def _event(kind: str, session: ConsoleSession, **payload: str) -> NewEvent:
    return NewEvent(kind=kind, actor=session.principal, payload={"session": session.id, **payload})
