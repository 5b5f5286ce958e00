"""Authorities, devices and certificates in SQL.

Each change has a number, and a row has the number of its last change. Another process finds by it what is new.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from palyra.identity.device import DeviceKind, DeviceState, IdentityTampered
from palyra.identity.records import (
    AuthorityRow,
    AuthorityState,
    AuthorityView,
    CertificateRow,
    DeviceIdentity,
    DeviceRow,
)
from palyra.store.port import Reader, Transaction
from palyra.vault.key_source import KeyRecord

_Row = TypeVar("_Row", DeviceRow, CertificateRow, AuthorityRow, DeviceIdentity, AuthorityView)

# The columns, in the order of the fields of the row types.
_DEVICE: Final = "device_id, kind, state, generation, used_generation, reason, created_ms, changed_ms"
_CERTIFICATE: Final = (
    "fingerprint, device_id, generation, key_sha256, authority_id, certificate, not_before_ms, not_after_ms"
)
_AUTHORITY: Final = (
    "authority_id, state, certificate, cross_certificate, key_id, sealed_key, created_ms, not_before_ms, not_after_ms"
)
# The end of the last certificate by an authority that a device may still use.
_NEEDED_UNTIL: Final = """SELECT COALESCE(MAX(c.not_after_ms), 0) FROM identity_certificates AS c
    JOIN identity_devices AS d USING (device_id)
    WHERE c.authority_id = a.authority_id AND d.state = 'active' AND c.generation >= d.used_generation"""


class IdentityTables:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def trust_domain(self) -> str | None:
        rows = self._tx.execute("SELECT trust_domain FROM identity_state")
        return rows[0][0] if rows else None

    def create(self, trust_domain: str) -> None:
        self._tx.execute("INSERT INTO identity_state VALUES (1, ?, 1)", (trust_domain,))

    def next_revision(self) -> int:
        rows = self._tx.execute("UPDATE identity_state SET revision = revision + 1 RETURNING revision")
        if not rows:
            raise IdentityTampered("the state of identity is gone")
        revision: int = rows[0][0]
        return revision

    def key(self, key_id: str) -> KeyRecord:
        rows = self._tx.execute("SELECT key_id, source, parameters FROM identity_keys WHERE key_id = ?", (key_id,))
        if not rows:
            raise IdentityTampered(f"the record of the key {key_id} is gone", key_id=key_id)
        try:
            parameters = msgspec.json.decode(rows[0][2], type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise IdentityTampered(f"the record of the key {key_id} was changed", key_id=key_id) from None
        return KeyRecord(key_id=key_id, source=rows[0][1], parameters=parameters)

    def put_key(self, record: KeyRecord) -> None:
        self._tx.execute(
            "INSERT OR IGNORE INTO identity_keys VALUES (?, ?, ?)",
            (record.key_id, record.source, msgspec.json.encode(record.parameters).decode()),
        )

    def drop_unused_keys(self) -> list[KeyRecord]:
        """Drop the keys that seal no authority any more."""
        unused = self._tx.execute(
            "SELECT key_id FROM identity_keys WHERE key_id NOT IN"
            " (SELECT key_id FROM identity_authorities WHERE state <> 'retired')"
        )
        dropped = [self.key(row[0]) for row in unused]
        for record in dropped:
            self._tx.execute("DELETE FROM identity_keys WHERE key_id = ?", (record.key_id,))
        return dropped

    def authorities(self) -> list[AuthorityRow]:
        """List those in force, the current one first."""
        rows = self._tx.execute(
            f"SELECT {_AUTHORITY} FROM identity_authorities WHERE state <> 'retired'"  # noqa: S608
            " ORDER BY state = 'current' DESC, created_ms DESC"
        )
        return [_row(AuthorityRow, row) for row in rows]

    def add_authority(self, row: AuthorityRow) -> None:
        self._tx.execute(
            "INSERT INTO identity_authorities VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            msgspec.structs.astuple(row),
        )

    def set_authority_state(self, authority_id: str, state: AuthorityState) -> None:
        self._tx.execute(
            "UPDATE identity_authorities SET state = ? WHERE authority_id = ?", (state.value, authority_id)
        )

    def destroy_authority_key(self, authority_id: str) -> None:
        """Overwrite the key first, then empty the field."""
        for sql in ("zeroblob(length(sealed_key))", "x''"):
            self._tx.execute(
                f"UPDATE identity_authorities SET sealed_key = {sql} WHERE authority_id = ?",  # noqa: S608
                (authority_id,),
            )

    def needed_until_ms(self, authority_id: str) -> int:
        rows = self._tx.execute(
            f"SELECT ({_NEEDED_UNTIL}) FROM identity_authorities AS a WHERE authority_id = ?",  # noqa: S608
            (authority_id,),
        )
        needed: int = rows[0][0] if rows else 0
        return needed

    def device(self, device_id: str) -> DeviceRow | None:
        rows = self._tx.execute(f"SELECT {_DEVICE} FROM identity_devices WHERE device_id = ?", (device_id,))  # noqa: S608
        return _row(DeviceRow, rows[0]) if rows else None

    def count_active(self) -> int:
        count: int = self._tx.execute("SELECT COUNT(*) FROM identity_devices WHERE state = 'active'")[0][0]
        return count

    def put_device(self, row: DeviceRow) -> None:
        self._tx.execute(
            "INSERT OR REPLACE INTO identity_devices VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*msgspec.structs.astuple(row), self.next_revision()),
        )

    def certificate(self, device_id: str, generation: int) -> CertificateRow | None:
        rows = self._tx.execute(
            f"SELECT {_CERTIFICATE} FROM identity_certificates WHERE device_id = ? AND generation = ?",  # noqa: S608
            (device_id, generation),
        )
        return _row(CertificateRow, rows[0]) if rows else None

    def add_certificate(self, row: CertificateRow) -> None:
        self._tx.execute(
            "INSERT INTO identity_certificates VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            msgspec.structs.astuple(row),
        )

    def drop_ended_certificates(self, device_id: str, *, below: int, now_ms: int) -> int:
        """Drop the ended certificates below a generation. Return how many the device has left."""
        self._tx.execute(
            "DELETE FROM identity_certificates WHERE device_id = ? AND generation < ? AND not_after_ms <= ?",
            (device_id, below, now_ms),
        )
        rows = self._tx.execute("SELECT COUNT(*) FROM identity_certificates WHERE device_id = ?", (device_id,))
        left: int = rows[0][0]
        return left


class KnownCertificate(msgspec.Struct, frozen=True):
    """The part of a certificate that recognises it."""

    fingerprint: str
    device_id: str
    generation: int
    not_after_ms: int


def revision_of(reader: Reader) -> int:
    """Return the number of the newest change; 0 before the first."""
    rows = reader.read("SELECT revision FROM identity_state")
    return rows[0][0] if rows else 0


def changed_since(reader: Reader, revision: int) -> tuple[list[DeviceRow], list[KnownCertificate]]:
    """List the devices that changed after a revision, and all their certificates."""
    devices = reader.read(f"SELECT {_DEVICE} FROM identity_devices WHERE revision > ?", (revision,))  # noqa: S608
    certificates = reader.read(
        "SELECT fingerprint, device_id, generation, not_after_ms FROM identity_certificates"
        " WHERE device_id IN (SELECT device_id FROM identity_devices WHERE revision > ?)",
        (revision,),
    )
    return [_row(DeviceRow, row) for row in devices], [KnownCertificate(*row) for row in certificates]


def list_devices(reader: Reader, device_id: str | None = None) -> list[DeviceIdentity]:
    rows = reader.read(
        "SELECT d.device_id, d.kind, d.state, d.generation, d.used_generation, d.reason, d.created_ms, d.changed_ms,"
        " COALESCE(c.fingerprint, ''), COALESCE(c.not_after_ms, 0) FROM identity_devices AS d"
        " LEFT JOIN identity_certificates AS c ON c.device_id = d.device_id AND c.generation = d.generation"
        " WHERE :device IS NULL OR d.device_id = :device ORDER BY d.device_id",
        {"device": device_id},
    )
    return [_row(DeviceIdentity, row) for row in rows]


def certificate_in_use(reader: Reader, device_id: str, kind: DeviceKind) -> bytes | None:
    rows = reader.read(
        "SELECT c.certificate FROM identity_devices AS d JOIN identity_certificates AS c ON c.device_id = d.device_id"
        " WHERE d.device_id = ? AND d.kind = ? AND d.state = ?"
        " AND c.generation = CASE WHEN d.used_generation > 0 THEN d.used_generation ELSE d.generation END",
        (device_id, kind.value, DeviceState.ACTIVE.value),
    )
    return rows[0][0] if rows else None


def list_authorities(reader: Reader) -> list[AuthorityView]:
    rows = reader.read(
        f"SELECT authority_id, state, created_ms, not_after_ms, ({_NEEDED_UNTIL}) FROM identity_authorities AS a"  # noqa: S608
        " ORDER BY created_ms DESC, rowid DESC"
    )
    return [_row(AuthorityView, row) for row in rows]


def trust_domain_of(reader: Reader) -> str | None:
    rows = reader.read("SELECT trust_domain FROM identity_state")
    return rows[0][0] if rows else None


def _row(kind: type[_Row], values: Sequence[Any]) -> _Row:
    try:
        fields = dict(zip(kind.__struct_fields__, values, strict=True))
        return msgspec.convert(fields, kind, dec_hook=lambda typed_id, value: typed_id(value))
    except msgspec.ValidationError:
        raise IdentityTampered(f"the record of {str(values[0])[:64]} was changed") from None


# The tables of device identity and of tokens.

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS identity_state (
        one INTEGER PRIMARY KEY CHECK (one = 1), trust_domain TEXT NOT NULL, revision INTEGER NOT NULL) STRICT""",
    """CREATE TABLE IF NOT EXISTS identity_keys (
        key_id TEXT PRIMARY KEY, source TEXT NOT NULL, parameters TEXT NOT NULL) STRICT, WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS identity_authorities (
        authority_id TEXT PRIMARY KEY, state TEXT NOT NULL, certificate BLOB NOT NULL, cross_certificate BLOB NOT NULL,
        key_id TEXT NOT NULL, sealed_key BLOB NOT NULL, created_ms INTEGER NOT NULL, not_before_ms INTEGER NOT NULL,
        not_after_ms INTEGER NOT NULL) STRICT""",
    """CREATE TABLE IF NOT EXISTS identity_devices (
        device_id TEXT PRIMARY KEY, kind TEXT NOT NULL, state TEXT NOT NULL, generation INTEGER NOT NULL,
        used_generation INTEGER NOT NULL, reason TEXT NOT NULL, created_ms INTEGER NOT NULL,
        changed_ms INTEGER NOT NULL, revision INTEGER NOT NULL) STRICT, WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS identity_devices_by_revision ON identity_devices (revision)",
    """CREATE TABLE IF NOT EXISTS identity_certificates (
        fingerprint TEXT PRIMARY KEY, device_id TEXT NOT NULL, generation INTEGER NOT NULL, key_sha256 TEXT NOT NULL,
        authority_id TEXT NOT NULL, certificate BLOB NOT NULL, not_before_ms INTEGER NOT NULL,
        not_after_ms INTEGER NOT NULL, UNIQUE (device_id, generation)) STRICT""",
)
TOKENS = ("CREATE TABLE IF NOT EXISTS api_tokens (token_id TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID",)
