"""Checkpoints in the database and beside it. Runs on the writer's connection, inside its transaction."""

import contextlib
import os
import secrets
import sqlite3
from pathlib import Path

from palyra.journal.checkpoint import Checkpoint, InvalidCheckpoint, make_checkpoint, parse_checkpoint
from palyra.limits import KIB
from palyra.signing.dsse import Signer

# A checkpoint has about 600 bytes.
MAX_CHECKPOINT_BYTES = 16 * KIB


def newest_checkpoint(connection: sqlite3.Connection) -> Checkpoint | None:
    row = connection.execute("SELECT document FROM checkpoints ORDER BY number DESC LIMIT 1").fetchone()
    return parse_checkpoint(row[0]) if row else None


def sealed_through(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT last_seq FROM checkpoints ORDER BY number DESC LIMIT 1").fetchone()
    return row[0] if row else 0


def seal(connection: sqlite3.Connection, *, time_ms: int, signer: Signer) -> Checkpoint:
    """Puts the events since the newest checkpoint, of which there is at least one, under another."""
    previous = newest_checkpoint(connection)
    after = previous.last_seq if previous else 0
    rows = connection.execute("SELECT hash FROM events WHERE seq > ? ORDER BY seq", (after,))
    checkpoint = make_checkpoint(previous, [hash_ for (hash_,) in rows], time_ms=time_ms, signer=signer)
    connection.execute(
        "INSERT INTO checkpoints (number, last_seq, document) VALUES (?, ?, ?)",
        (checkpoint.number, checkpoint.last_seq, checkpoint.to_json()),
    )
    return checkpoint


def keep_beside(path: Path, checkpoint: Checkpoint) -> None:
    """Replaces the copy at ``path`` by a newer one. A full disk leaves the older copy, which is still an anchor."""
    with contextlib.suppress(InvalidCheckpoint, OSError):
        if load_checkpoint(path).number >= checkpoint.number:
            return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(checkpoint.to_json() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def load_checkpoint(path: Path) -> Checkpoint:
    with path.open("rb") as file:
        return parse_checkpoint(file.read(MAX_CHECKPOINT_BYTES).strip())
