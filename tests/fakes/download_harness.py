"""A session's download folders with a browser that does what a test tells it to."""

import secrets
from pathlib import Path
from typing import Any

from palyra.browser.domain.budget import SessionBudget
from palyra.browser.domain.download import DownloadRecord, rules
from palyra.browser.tabs.download_folder import Announced, DownloadSandboxSession


class DownloadHarness:
    def __init__(self, folder: Path, *, extra: tuple[str, ...] = (), **budget: int) -> None:
        self.root, self.incoming = folder / "session", folder / "incoming"
        self.incoming.mkdir(exist_ok=True)
        self.budget, self.rules = SessionBudget(**budget), rules(extra)
        self.session = self.opened()

    def opened(self) -> DownloadSandboxSession:
        return DownloadSandboxSession(
            self.root, self.incoming, budget=self.budget, rules=self.rules, now_ms=lambda: 1_000
        )

    def begin(self, name: str = "a.txt", declared: str | None = None, length: int | None = None) -> str:
        guid = secrets.token_hex(16)
        announced = Announced(guid=guid, suggested_name=name, source="https://shop.test/file", declared_type=declared)
        self.session.begin(announced, length)
        return guid

    def download(
        self, name: str, data: bytes, declared: str | None = None, *, complete: bool = True, **more: Any
    ) -> DownloadRecord:
        guid = self.begin(name, declared, **more)
        (self.incoming / guid).write_bytes(data)
        return self.session.finish(guid, complete=complete)

    def files(self) -> dict[str, list[str]]:
        """What lies in each folder, without the records."""
        return {
            name: sorted(path.name for path in (self.root / name).iterdir() if path.suffix != ".json")
            for name in ("allowlist", "quarantine")
        }
