"""The wiring of ``palyra-workerd``: its folder, its executors, its egress, and the daemon it belongs to."""

import asyncio
import platform
import random
import secrets
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from palyra.clock import SystemClock
from palyra.config.state_dir import StateDir
from palyra.daemon.process_setup import keep_memory_private
from palyra.daemon.settings import Settings
from palyra.devicelink.agent.device_folder import DaemonUnreachable, DeviceRecord, NotPaired, PairingFolder
from palyra.devicelink.agent.identity import HeldIdentity, read_held_certificate
from palyra.devicelink.agent.joining import Joining
from palyra.devicelink.limits import MAX_DEVICE_NAME_CHARS
from palyra.devicelink.pairing.code import DeviceFacts, PairingCode, ServerAddress
from palyra.executors.worker.leased_calls import LeasedCallSettings, WorkerCalls
from palyra.fleet.agent.agent import End, WorkerAgent
from palyra.fleet.agent.facts import MeasuredBuild, WorkerFacts, measure
from palyra.fleet.agent.link import LinkLost, WorkerLink
from palyra.fleet.agent.note_folder import NoteFolder
from palyra.fleet.agent.ports import EgressOfLease
from palyra.fleet.agent.scratch import ScratchFolder
from palyra.fleet.egress.handover_client import ProxyOfWorker
from palyra.identity.device import DeviceKind
from palyra.nodes.agent.capabilities import platform_name
from palyra.sandbox.layers.workspace_scan import remove_tree
from palyra.version import VERSION

FOLDER: Final = "worker"
SCRATCH: Final = "scratch"
_BOOT_BYTES: Final = 16


def open_folder(state_dir: StateDir) -> PairingFolder:
    return PairingFolder(StateDir.open(state_dir.path(FOLDER)), DeviceKind.WORKER.value)


class WorkerHost:
    """Run the worker once. ``say`` prints a line for the person who watches."""

    def __init__(self, settings: Settings, state_dir: StateDir, say: Callable[[str], None], *, name: str = "") -> None:
        self._settings = settings
        self._folder = open_folder(state_dir)
        self._state = StateDir.open(state_dir.path(FOLDER))
        self._say = say
        chosen = name or settings.worker.name or platform.node() or "worker"
        self._name = chosen[:MAX_DEVICE_NAME_CHARS]
        self._clock = SystemClock()

    async def join(self, code: PairingCode | None, servers: Sequence[ServerAddress]) -> DeviceRecord:
        """Pairs with a daemon as a worker of its fleet; without a code a pairing that was begun goes on."""
        facts = DeviceFacts(name=self._name, platform=platform_name(), software_version=VERSION)
        joining = Joining(
            self._folder,
            kind=DeviceKind.WORKER,
            facts=facts,
            show_comparison=self._show_comparison,
            draw=random.random,
        )
        self._folder.lock()
        try:
            return await joining.join(code, servers)
        finally:
            self._folder.unlock()

    async def run(self, egress: EgressOfLease | None = None) -> End:
        """Serve until SIGTERM or SIGINT, or until the daemon no longer knows this worker."""
        keep_memory_private()
        proxy = None if egress is not None else self._proxy()
        try:
            return await self._serve(egress or proxy)
        finally:
            if proxy is not None:
                proxy.close()

    def _proxy(self) -> ProxyOfWorker | None:
        socket = self._settings.worker.egress_socket
        return ProxyOfWorker(Path(socket).expanduser()) if socket else None

    async def _serve(self, egress: EgressOfLease | None) -> End:
        record = self._folder.load()
        if record is None or not record.paired:
            raise NotPaired("this worker has not joined a daemon")
        self._folder.lock()
        calls = WorkerCalls(settings_of_calls(self._settings), self._state, egress=egress, clock=self._clock)
        try:
            measured = await asyncio.to_thread(measure, image_digest=self._settings.worker.image_digest_sha256)
            agent = self._agent(HeldIdentity(self._folder, record), calls, measured, egress)
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, agent.stop)
            for warning in self._folder.warnings:
                self._say(warning)
            self._say(f"This is worker {record.device_id}, {record.device_name}, build {measured.build_digest_sha256}.")
            if egress is None:
                self._say("There is no egress proxy: programs get no network, and the attestation says so.")
            return await agent.run()
        finally:
            await calls.close()
            self._folder.unlock()

    def _agent(
        self, identity: HeldIdentity, calls: WorkerCalls, measured: MeasuredBuild, egress: EgressOfLease | None
    ) -> WorkerAgent:
        facts = WorkerFacts(
            boot_id=secrets.token_hex(_BOOT_BYTES),
            platform=platform_name(),
            software_version=VERSION,
            slots=self._settings.worker.slots,
            capabilities=calls.capabilities,
            image_digest_sha256=measured.image_digest_sha256,
            build_digest_sha256=measured.build_digest_sha256,
            artifact_digest_sha256=measured.artifact_digest_sha256,
        )
        return WorkerAgent(
            identity,
            facts=facts,
            calls=calls,
            scratches=ScratchFolder(self._state.path(SCRATCH), remove_tree=remove_tree),
            notes=NoteFolder(self._state),
            egress=egress,
            observer=_Observer(self._folder, self._say, self._clock),
            clock=self._clock,
            draw=random.random,
        )

    def _show_comparison(self, comparison_code: str, device_id: str) -> None:
        self._say(
            f"This worker shows the code {comparison_code}. Approve it at the daemon only if it shows the same code:\n"
            f"  palyra pair list\n  palyra pair approve ...\nWaiting for the decision (worker {device_id})."
        )


class _Observer:
    """Prints lines for a person, and writes the state for the status command."""

    def __init__(self, folder: PairingFolder, say: Callable[[str], None], clock: SystemClock) -> None:
        self._folder = folder
        self._clock = clock
        self.say = say

    def state(self, state: str, **facts: Any) -> None:
        self._folder.write_status({"state": state, "since_ms": self._clock.now_ms(), **facts})


def status_of(state_dir: StateDir) -> dict[str, Any]:
    """Return what the worker's folder says, whether it runs or not."""
    folder = open_folder(state_dir)
    record = folder.load()
    running = folder.is_locked()
    if record is None:
        return {"joined": False, "running": running}
    shown: dict[str, Any] = {
        "joined": record.paired,
        "running": running,
        "name": record.device_name,
        "servers": list(record.servers),
        "told": folder.warnings,
    }
    if not record.paired:
        return {**shown, "state": "joining" if record.pairing else "not joined"}
    held = read_held_certificate(record.certificate_pem, record.generation)
    status = folder.read_status()
    notes = NoteFolder(StateDir.open(state_dir.path(FOLDER)))
    return {
        **shown,
        "worker_id": record.device_id,
        "generation": held.generation,
        "certificate_ends_ms": held.not_after_ms,
        "state": status.get("state", "offline") if running else "stopped",
        "why": status.get("why", "") if running else "",
        "since_ms": status.get("since_ms") if running else None,
        "open_leases": notes.names(),
    }


async def leave(state_dir: StateDir, *, forget_only: bool) -> dict[str, Any]:
    """Leaves the fleet at the daemon, then here. ``forget_only`` asks no daemon: for one that is gone for good."""
    folder = open_folder(state_dir)
    if forget_only:
        # A worker that runs would go on with the key it holds. A record that cannot be read can still be forgotten.
        folder.lock()
        folder.forget()
        folder.unlock()
        return {"left": True, "told_daemon": False}
    record = folder.load()
    if record is None:
        raise NotPaired("this worker has not joined a daemon")
    if record.paired:
        await _tell_daemon(HeldIdentity(folder, record))
    folder.forget()
    return {"left": True, "told_daemon": record.paired}


async def _tell_daemon(identity: HeldIdentity) -> None:
    why = "no address is known"
    for server in identity.servers:
        link = WorkerLink(server, identity.credentials(), identity.device_id)
        try:
            await link.leave("the worker left")
            return
        except LinkLost as lost:
            why = lost.why
        finally:
            await link.close()
    raise DaemonUnreachable(
        f"the daemon could not be notified: {why}",
        hint="try again, or `palyra-workerd leave --forget` and have an operator remove the worker",
    )


def settings_of_calls(settings: Settings) -> LeasedCallSettings:
    return LeasedCallSettings(
        sandbox=settings.sandbox,
        egress=settings.egress,
        wasm=settings.wasm,
        protected_names=settings.workspace.protected,
    )
