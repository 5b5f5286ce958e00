"""The state of devices in a temporary folder, in either store, on a real journal; and records to put in it."""

from pathlib import Path
from typing import Any

from fakes.journal_harness import JournalHarness
from palyra.clock import SystemClock
from palyra.devicelink.pairing.code import DeviceFacts, PairingMethod, StretchedCode
from palyra.identity.device import DeviceId, DeviceKind
from palyra.nodes.domain.records import (
    CapabilityRequestRecord,
    CodeId,
    DevicePairingCodeRecord,
    DevicePairingRequestRecord,
    NodeRecord,
    PairingId,
    PairingState,
    RequestId,
    RequestState,
)
from palyra.nodes.store import file, node_tables
from palyra.nodes.store.file import NodeRuntimeState
from palyra.nodes.store.port import NodeState
from palyra.nodes.store.schema import SCHEMA
from palyra.store.sqlite.store import SqliteStore

BACKENDS = ("file", "sql")


class NodeStateHarness:
    def __init__(self, folder: Path, backend: str = "file", clock: Any = None) -> None:
        self.folder = folder
        self.backend = backend
        self.clock = clock or SystemClock()
        self.journal = JournalHarness(folder)
        self.stores: list[SqliteStore] = []

    @property
    def file(self) -> Path:
        return self.folder / file.FILE_NAME

    @property
    def backup(self) -> Path:
        return self.folder / file.BACKUP_NAME

    def store(self) -> SqliteStore:
        """A store of its own each time, as another process has."""
        store = self.journal.open(schema=SCHEMA, clock=self.clock)
        self.stores.append(store)
        return store

    async def state(self, store: SqliteStore | None = None) -> NodeState:
        store = store or self.store()
        if self.backend == "sql":
            return node_tables.SqlNodeState(store, self.clock)
        return await NodeRuntimeState.open(self.folder, store, self.clock)

    def events(self, kind: str = "") -> list[tuple[str, Any]]:
        store = self.stores[-1]
        return [(event.kind, event.payload_value()) for event in store.events_since(0, 100_000, kind=kind)]

    def close(self) -> None:
        for store in self.stores:
            store.close()
        self.stores.clear()


def code_record(**changes: Any) -> DevicePairingCodeRecord:
    fields: dict[str, Any] = {
        "id": CodeId.new(),
        "nameplate": "123",
        "method": PairingMethod.PIN,
        "kind": DeviceKind.NODE,
        "stretched": StretchedCode(salt=b"s" * 16, n=2, r=1, p=1, hash=b"h" * 32),
        "created_ms": 1_000,
        "expires_ms": 4_000_000_000_000,
        "created_by": "user:operator",
    }
    return DevicePairingCodeRecord(**{**fields, **changes})


def pairing_record(**changes: Any) -> DevicePairingRequestRecord:
    fields: dict[str, Any] = {
        "id": PairingId.new(),
        "device_id": DeviceId.new(),
        "kind": DeviceKind.NODE,
        "code_id": CodeId.new(),
        "method": PairingMethod.PIN,
        "state": PairingState.PENDING_APPROVAL,
        "facts": DeviceFacts(name="a laptop", platform="linux"),
        "csr_der": b"csr",
        "key_fingerprint": "ab" * 32,
        "comparison_code": "123456",
        "collect_sha256": b"c" * 32,
        "address": "192.0.2.1",
        "created_ms": 1_000,
        "expires_ms": 4_000_000_000_000,
    }
    return DevicePairingRequestRecord(**{**fields, **changes})


def node_record(**changes: Any) -> NodeRecord:
    fields: dict[str, Any] = {
        "id": DeviceId.new(),
        "kind": DeviceKind.NODE,
        "name": "a laptop",
        "platform": "linux",
        "software_version": "1",
        "paired_ms": 1_000,
        "pairing_id": PairingId.new(),
    }
    return NodeRecord(**{**fields, **changes})


def request_record(**changes: Any) -> CapabilityRequestRecord:
    fields: dict[str, Any] = {
        "id": RequestId.new(),
        "device_id": DeviceId.new(),
        "capability": "echo",
        "state": RequestState.QUEUED,
        "principal": "agent:a",
        "call_id": "",
        "input_digest": "sha256:00",
        "idempotent": True,
        "created_ms": 1_000,
        "deadline_ms": 2_000,
    }
    return CapabilityRequestRecord(**{**fields, **changes})
