"""Device identity on a journal of its own with a real key file, a clock that is told the time, and device keys."""

import os
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fakes.journal_harness import JournalHarness, StillClock
from palyra.identity.authorities import Authorities
from palyra.identity.identity_manager import IdentityManager
from palyra.identity.tables import SCHEMA
from palyra.store.sqlite.store import SqliteStore
from palyra.vault.envelope import AesGcm
from palyra.vault.key_file import KeyFile

DAY_SECONDS = 86_400
ACTOR = "user:operator"


class SetClock(StillClock):
    """Wall and monotonic time move together, and only when told."""

    def now_ms(self) -> int:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += int(seconds * 1_000)
        self.seconds += seconds


class IdentityHarness:
    """State and key file in two folders, as they are in life."""

    def __init__(self, folder: Path, *, now_ms: int | None = None) -> None:
        self.state = folder / "state"
        self.state.mkdir(mode=0o700, exist_ok=True)
        self.config = folder / "config"
        self.config.mkdir(mode=0o700, exist_ok=True)
        self.key_file = self.config / "vault.key"
        self.journal = JournalHarness(self.state)
        self.clock = SetClock() if now_ms is None else SetClock(now_ms)
        self._stores: list[SqliteStore] = []

    def store(self) -> SqliteStore:
        """A connection of its own, as another process has it."""
        opened = self.journal.open(schema=SCHEMA, clock=self.clock)
        self._stores.append(opened)
        return opened

    def manager(self, store: SqliteStore | None = None, **options: Any) -> IdentityManager:
        """A new process's view: it holds no key yet."""
        where = store or self.store()
        place = KeyFile(self.key_file, self.state)
        authorities = Authorities(
            store=where,
            clock=self.clock,
            aead=AesGcm(),
            random=os.urandom,
            sources={place.kind: place},
            source=place.kind,
            actor="palyrad",
        )
        options = {"certificate_seconds": DAY_SECONDS, **options}
        return IdentityManager(store=where, clock=self.clock, authorities=authorities, **options)

    def events(self, kind: str = "") -> list[tuple[str, Any]]:
        found = self._stores[0].events_since(0, 10_000, kind=kind)
        return [(event.kind, event.payload_value()) for event in found]

    def close(self) -> None:
        for store in self._stores:
            store.close()


class DeviceKey:
    """A key as a device makes it, and requests for certificates for it."""

    def __init__(self, key: Any = None) -> None:
        self.key = key or ec.generate_private_key(ec.SECP256R1())

    def csr(self, *extensions: x509.ExtensionType, common_name: str = "") -> bytes:
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)] if common_name else [])
        builder = x509.CertificateSigningRequestBuilder().subject_name(name)
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.DER)

    def pem(self) -> bytes:
        pem: bytes = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return pem
