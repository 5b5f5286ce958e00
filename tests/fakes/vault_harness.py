"""A vault on a journal of its own with a real key file, and keyrings that live in a dict."""

import os
from pathlib import Path
from typing import Any

from fakes.journal_harness import JournalHarness
from palyra.clock import SystemClock
from palyra.secret import Secret
from palyra.store.sqlite.store import SqliteStore
from palyra.vault.envelope import AesGcm, Sealer
from palyra.vault.key_file import KeyFile
from palyra.vault.key_source import KeySource
from palyra.vault.reference import SecretRef, UseNote
from palyra.vault.tables import SCHEMA
from palyra.vault.vault import Vault

NOTE = UseNote(actor="test")


def ref(text: str) -> SecretRef:
    return SecretRef.parse(text)


class VaultHarness:
    """State and key file in two folders, as they are in life."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.state.mkdir(mode=0o700, exist_ok=True)
        self.config = folder / "config"
        self.config.mkdir(mode=0o700, exist_ok=True)
        self.key_file = self.config / "vault.key"
        self.journal = JournalHarness(self.state)
        self.store: SqliteStore | None = None

    @property
    def database(self) -> Path:
        return self.journal.database

    def open_store(self) -> SqliteStore:
        if self.store is None:
            self.store = self.journal.open(schema=SCHEMA, clock=SystemClock())
        return self.store

    def vault(self, *sources: KeySource, source: str = "", **options: Any) -> Vault:
        """A new process's view: it holds no key yet."""
        places = sources or (KeyFile(self.key_file, self.state),)
        return Vault(
            store=self.open_store(),
            sealer=Sealer(AesGcm(), os.urandom),
            random=os.urandom,
            sources={place.kind: place for place in places},
            source=source or places[0].kind,
            learn=options.get("learn", self.journal.redactor.register),
        )

    async def filled(self, values: dict[str, str]) -> Vault:
        vault = self.vault()
        for name, value in values.items():
            await vault.put(ref(name), Secret(value), actor="user:operator")
        return vault

    def events(self, kind: str = "") -> list[tuple[str, Any]]:
        found = self.open_store().events_since(0, 100_000, kind=kind)
        return [(event.kind, event.payload_value()) for event in found]

    def close(self) -> None:
        if self.store is not None:
            self.store.close()
            self.store = None


class DictKeyring:
    """A keyring package with one backend, which says it is the one of ``module``."""

    def __init__(self, module: str = "keyring.backends.SecretService") -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.broken: Exception | None = None
        backend = type("Keyring", (), {"__module__": module})
        self._backend = backend()
        for name in ("get_password", "set_password", "delete_password"):
            setattr(self._backend, name, getattr(self, name))
        self._backend.backends = ()

    def get_keyring(self) -> Any:
        return self._backend

    def chain(self, *parts: "DictKeyring") -> "DictKeyring":
        self._backend.backends = tuple(part.get_keyring() for part in parts)
        return self

    def get_password(self, service: str, name: str) -> str | None:
        if self.broken is not None:
            raise self.broken
        return self.kept.get((service, name))

    def set_password(self, service: str, name: str, text: str) -> None:
        if self.broken is not None:
            raise self.broken
        self.kept[service, name] = text

    def delete_password(self, service: str, name: str) -> None:
        del self.kept[service, name]
