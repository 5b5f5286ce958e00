"""Writes that were asked for, by their Idempotency-Key: the second one gets the answer of the first."""

import hashlib
import re
from typing import Any

import msgspec

from palyra.console.errors import BadIdempotencyKey, KeyInUse, KeyReused
from palyra.console.limits import IDEMPOTENCY_MS, KEYS_REMOVED_AT_ONCE, MAX_IDEMPOTENCY_KEY_CHARS
from palyra.tools.ports import Transaction

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
    """The answer that was given before, or None for whoever comes first."""
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
