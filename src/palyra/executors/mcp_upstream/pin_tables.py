"""Pins in the database, each change with its journal entry."""

import msgspec

from palyra.executors.mcp_upstream.pinning import Pin, PinState
from palyra.store.event import NewEvent
from palyra.store.port import Store, Transaction

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Pin).decode


def read_pins(store: Store, server: str) -> dict[str, Pin]:
    rows = store.read("SELECT record FROM mcp_pins WHERE server = ?", (server,))
    return {pin.tool: pin for (raw,) in rows for pin in (_decode(raw),)}


def put_seen(tx: Transaction, pin: Pin, *, actor: str) -> None:
    kind = "mcp.tool_quarantined" if pin.state is PinState.QUARANTINED else "mcp.tool_found"
    _put(tx, pin, kind, actor)


def put_approved(tx: Transaction, pin: Pin, *, actor: str) -> None:
    _put(tx, pin, "mcp.tool_approved", actor)


def _put(tx: Transaction, pin: Pin, kind: str, actor: str) -> None:
    tx.execute(
        "INSERT INTO mcp_pins VALUES (?, ?, ?) ON CONFLICT (server, tool) DO UPDATE SET record = excluded.record",
        (pin.server, pin.tool, _encode(pin)),
    )
    payload = {
        "server": pin.server,
        "tool": f"{pin.server}.{pin.tool}",
        "digest": pin.seen.digest,
        "approved_digest": "" if pin.approved is None else pin.approved.digest,
        "decided_by": pin.decided_by,
    }
    tx.append(NewEvent(kind=kind, actor=actor, payload=payload))


SCHEMA = (
    """CREATE TABLE IF NOT EXISTS mcp_pins (
        server TEXT NOT NULL, tool TEXT NOT NULL, record BLOB NOT NULL, PRIMARY KEY (server, tool)) WITHOUT ROWID""",
)
