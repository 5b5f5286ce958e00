"""The process `palyra-egressd`: its folder, its socket, its proxy and its link to the daemon."""

import asyncio
import os
import platform
import random
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from palyra.clock import SystemClock
from palyra.config.state_dir import StateDir
from palyra.devicelink.agent.device_folder import DeviceRecord, NotPaired, PairingFolder
from palyra.devicelink.agent.identity import read_held_certificate
from palyra.devicelink.agent.joining import Joining
from palyra.devicelink.limits import MAX_DEVICE_NAME_CHARS
from palyra.devicelink.pairing.code import DeviceFacts, PairingCode, ServerAddress
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.proxy.resolver import OwnAddresses, SystemResolver
from palyra.egress.proxy.server import raise_descriptor_limit
from palyra.fleet.egress.connection import EgressLink
from palyra.fleet.egress.handover_server import HandoverServer
from palyra.fleet.egress.policy import WorkerEgressPolicy
from palyra.fleet.egress.proxy import WorkerEgress, WorkerPin
from palyra.fleet.egress.violations import ViolationReports, ViolationSpool
from palyra.identity.device import DeviceKind
from palyra.signing.p256 import P256Signer
from palyra.version import VERSION

KIND: Final = "egress"


class EgressHostOptions(msgspec.Struct, frozen=True, kw_only=True):
    """An empty ``worker_id`` stands for the first worker that asks for a binding."""

    socket: Path
    policy: WorkerEgressPolicy
    worker_uids: frozenset[int]
    worker_id: str = ""


def open_folder(state_dir: StateDir) -> PairingFolder:
    return PairingFolder(StateDir.open(state_dir.path(KIND)), KIND)


class EgressHost:
    """One life of the process. ``say`` prints a line for people."""

    def __init__(self, state_dir: StateDir, say: Callable[[str], None]) -> None:
        self._folder = open_folder(state_dir)
        self._say = say

    async def join(self, code: PairingCode | None, servers: Sequence[ServerAddress], name: str = "") -> DeviceRecord:
        self._folder.lock()
        try:
            chosen = (name or f"egress of {platform.node() or 'a worker'}")[:MAX_DEVICE_NAME_CHARS]
            facts = DeviceFacts(name=chosen, platform=platform.system().lower(), software_version=VERSION)
            joining = Joining(
                self._folder,
                kind=DeviceKind.EGRESS,
                facts=facts,
                show_comparison=self._show_comparison,
                draw=random.random,
            )
            return await joining.join(code, servers)
        finally:
            self._folder.unlock()

    def _show_comparison(self, comparison_code: str, device_id: str) -> None:
        self._say(
            f"This proxy shows the code {comparison_code}. Approve {device_id} only if the daemon shows the same."
        )

    async def run(self, options: EgressHostOptions) -> None:
        """Serve until SIGTERM or SIGINT."""
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        self._folder.lock()
        try:
            await self.serve(options, stopping)
        finally:
            self._folder.unlock()

    async def serve(self, options: EgressHostOptions, stopping: asyncio.Event) -> None:
        record = self._folder.load()
        if record is None or not record.paired or record.key_pem is None:
            raise NotPaired("this egress proxy is not paired: palyra-egressd join")
        raise_descriptor_limit()
        clock = SystemClock()
        resolver = SystemResolver(dict(options.policy.static_hosts))
        spool = ViolationSpool(self._folder.folder.root, clock.now_ms)
        egress = WorkerEgress(
            options.policy,
            egress_id=record.device_id,
            signer=P256Signer.from_pem(record.key_pem.reveal().encode()),
            pin=WorkerPin(self._folder, options.worker_id),
            reports=ViolationReports(spool, clock),
            service=EgressProxyPolicyService(OwnAddresses()),
            resolver=resolver,
            clock=clock,
        )
        link = EgressLink(self._folder, record, egress, clock=clock, draw=random.random)
        server = HandoverServer(egress, uids=options.worker_uids)
        tasks = [
            asyncio.create_task(link.run(), name="link to the daemon"),
            asyncio.create_task(egress.sweep(), name="deadlines"),
            asyncio.create_task(stopping.wait(), name="stop"),
        ]
        try:
            server.listen(options.socket)
            self._say(
                msgspec.json.encode(
                    {
                        "egress_id": record.device_id,
                        "socket": str(options.socket),
                        "policy_digest_sha256": options.policy.digest(),
                        "pid": os.getpid(),
                        "unreported": len(spool),
                    }
                ).decode()
            )
            # A task that ends by itself ends the process: a proxy that half works guards nothing.
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await server.close()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            egress.proxy.close()
            resolver.close()
            spool.close()


def status_of(state_dir: StateDir) -> dict[str, Any]:
    """Read the proxy's folder, whether the proxy runs or not."""
    folder = open_folder(state_dir)
    record = folder.load()
    running = folder.is_locked()
    if record is None or not record.paired:
        return {"paired": False, "running": running}
    held = read_held_certificate(record.certificate_pem, record.generation)
    return {
        "paired": True,
        "running": running,
        "egress_id": record.device_id,
        "name": record.device_name,
        "servers": list(record.servers),
        "worker_id": WorkerPin(folder).worker_id,
        "generation": held.generation,
        "renews_at_ms": held.renew_at_ms,
        "certificate_ends_ms": held.not_after_ms,
    }
