"""A daemon's side of pairing with every real part: state, authority, TLS listener; and devices that come to it."""

import asyncio
import contextlib
import hashlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fakes.identity_harness import DeviceKey, SetClock
from fakes.journal_harness import JournalHarness
from fakes.node_state_harness import SCHEMA as NODE_SCHEMA
from palyra.clock import SystemClock
from palyra.daemon.vault_wiring import make_identity
from palyra.devicelink.agent.joining import ProvedPairing, prove, wait_for_decision
from palyra.devicelink.pairing.code import DeviceFacts, PairingCode, PairingMethod, ServerAddress, parse_code
from palyra.devicelink.pairing.messages import Answer
from palyra.identity.device import DeviceKind
from palyra.identity.settings import IdentitySettings
from palyra.identity.tables import SCHEMA as IDENTITY_SCHEMA
from palyra.identity.x509 import read_requested_key
from palyra.nodes.pairing.listener import BootstrapListener, ServedIdentity, create_bootstrap_app
from palyra.nodes.pairing.service import BootstrapService, DecisionSignal, NewCode, PairingEndpoint, PairingService
from palyra.nodes.store import node_tables
from palyra.nodes.store.file import NodeRuntimeState
from palyra.secret import Secret
from palyra.vault.key_file import KeyFile

OPERATOR = "user:operator"
FACTS = DeviceFacts(name="a laptop", platform="linux", software_version="1.0")
NODE_PORT = 4444


def read_key(csr_der: bytes) -> str:
    return hashlib.sha256(read_requested_key(csr_der)).hexdigest()


class MonotonicClock(SetClock):
    """Wall time is real, because TLS looks at it; monotonic time moves when told."""

    def now_ms(self) -> int:
        return SystemClock().now_ms() + self.now

    def __init__(self) -> None:
        super().__init__(0)


class PairingHarness:
    """One life of a daemon. Another harness on the same folder is its next life."""

    def __init__(self, folder: Path, *, backend: str = "file", port: int = 0) -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "config").mkdir(mode=0o700, exist_ok=True)
        self.clock = MonotonicClock()
        self.journal = JournalHarness(self.state_dir)
        self.store = self.journal.open(schema=(*NODE_SCHEMA, *IDENTITY_SCHEMA), clock=self.clock)
        self.backend = backend
        place = KeyFile(folder / "config" / "vault.key", self.state_dir)
        self.identity = make_identity(
            IdentitySettings(),
            store=self.store,
            clock=self.clock,
            sources={place.kind: place},
            source=place.kind,
            actor="palyrad",
        )
        self.decided: Any = None
        self.refusals: list[tuple[str, str]] = []
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", port))
        self.socket.listen(512)
        self.address = ServerAddress("127.0.0.1", self.socket.getsockname()[1])

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["PairingHarness"]:
        await self.identity.open()
        if self.backend == "sql":
            self.nodes: Any = node_tables.SqlNodeState(self.store, self.clock)
        else:
            self.nodes = await NodeRuntimeState.open(self.state_dir, self.store, self.clock)
        self.decided = DecisionSignal()
        self.served = ServedIdentity(self.identity)
        self.service = BootstrapService(
            state=self.nodes,
            issuer=self.identity,
            read_key=read_key,
            served=self.served.served,
            node_port=lambda: NODE_PORT,
            clock=self.clock,
            decided=self.decided,
            refused=lambda code, address: self.refusals.append((code, address)),
        )
        self.pairing = PairingService(
            state=self.nodes,
            open_endpoint=self.open,
            random=os.urandom,
            decided=self.decided,
            learn=self.journal.redactor.register,
            ttl_seconds=600,
        )
        self.listener = BootstrapListener(self.socket, create_bootstrap_app(self.service), self.served)
        serving = asyncio.create_task(self.listener.serve())
        try:
            yield self
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving
            self.socket.close()
            self.store.close()

    async def open(self) -> PairingEndpoint:
        return PairingEndpoint((self.address,), self.served.served().ca_hash)

    async def code(self, method: str = "pin", kind: str = "node", **options: Any) -> tuple[NewCode, PairingCode]:
        new = await self.pairing.make_code(PairingMethod(method), DeviceKind(kind), actor=OPERATOR, **options)
        return new, parse_code(new.text.reveal())

    def events(self, kind: str = "") -> list[tuple[str, Any]]:
        return [(event.kind, event.payload_value()) for event in self.store.events_since(0, 100_000, kind=kind)]


class Device:
    """One machine with one key."""

    def __init__(
        self, server: ServerAddress, *, kind: DeviceKind = DeviceKind.NODE, facts: DeviceFacts = FACTS
    ) -> None:
        self.server = server
        self.kind = kind
        self.facts = facts
        self.key = DeviceKey()

    async def prove(self, code: PairingCode, **options: Any) -> ProvedPairing:
        options = {"servers": [self.server], "csr_der": self.key.csr(), "facts": self.facts, **options}
        return await prove(code, kind=self.kind, **options)

    async def ask(self, proved: ProvedPairing, wait_ms: int = 0) -> Answer:
        return await wait_for_decision(proved, wait_ms=wait_ms)


def wrong(code: PairingCode) -> PairingCode:
    """The same code with another secret."""
    import msgspec

    text = code.secret.reveal()
    other = "".join(str((int(char) + 1) % 10) for char in text) if text.isdigit() else text[::-1]
    return msgspec.structs.replace(code, secret=Secret(other))
