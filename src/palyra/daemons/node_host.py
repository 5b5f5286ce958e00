"""The node host of a device, joined: its folder, its sandbox, its person, and the daemon it belongs to."""

import asyncio
import platform
import random
import signal
from collections.abc import Sequence
from typing import Any

from palyra.clock import SystemClock
from palyra.config.settings import Settings
from palyra.config.state_dir import StateDir
from palyra.daemons.node_commands import SandboxedCommands
from palyra.identity.device import DeviceKind
from palyra.nodes.device.device_key import held_certificate
from palyra.nodes.device.device_record import DeviceRecord
from palyra.nodes.device.errors import DaemonUnreachable, NotPaired
from palyra.nodes.device.joining import Joining
from palyra.nodes.host import offered
from palyra.nodes.host.capabilities import Capabilities
from palyra.nodes.host.device_folder import DeviceFolder
from palyra.nodes.host.driver import HostDriver, HostFacts
from palyra.nodes.host.grpc_link import GrpcLink, LinkLost
from palyra.nodes.host.link_messages import LinkCredentials
from palyra.nodes.host.messages import End
from palyra.nodes.host.ports import Person
from palyra.nodes.host.system_health import platform_name
from palyra.nodes.limits import MAX_DEVICE_NAME_CHARS
from palyra.nodes.pairing_code import PairingCode, ServerAddress
from palyra.nodes.records import DeviceFacts
from palyra.version import VERSION

FOLDER = "node"


def open_folder(state_dir: StateDir) -> DeviceFolder:
    return DeviceFolder(StateDir.open(state_dir.path(FOLDER)))


class NodeHost:
    """One life of it. ``person`` is who is asked, notified and told."""

    def __init__(self, settings: Settings, state_dir: StateDir, person: Person, *, name: str = "") -> None:
        self._settings = settings
        self._folder = open_folder(state_dir)
        self._root = state_dir.path(FOLDER)
        self._person = person
        chosen = name or settings.node.name or platform.node() or "device"
        self._name = chosen[:MAX_DEVICE_NAME_CHARS]

    async def run(self, code: PairingCode | None, servers: Sequence[ServerAddress]) -> End:
        """Pairs if need be, then serves until SIGTERM or SIGINT, or until it cannot go on."""
        self._folder.lock()
        try:
            stopping = asyncio.Event()
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, stopping.set)
            joined = await _first_of(self._join(code, servers), stopping)
            if not isinstance(joined, DeviceRecord):
                return End("", "stopped before it was paired")
            return await self._serve(joined, stopping)
        finally:
            self._folder.unlock()

    async def _join(self, code: PairingCode | None, servers: Sequence[ServerAddress]) -> DeviceRecord:
        facts = DeviceFacts(name=self._name, platform=platform_name(), software_version=VERSION)
        joining = Joining(
            self._folder,
            kind=DeviceKind.NODE,
            facts=facts,
            show_comparison=self._show_comparison,
            draw=random.random,
        )
        return await joining.join(code, servers)

    def _show_comparison(self, comparison_code: str, device_id: str) -> None:
        self._person.tell(
            f"This device shows the code {comparison_code}. Whoever approves it at the daemon must see the same one:\n"
            f"  palyra pair list\n  palyra pair approve ...\nWaiting for the decision (device {device_id})."
        )

    async def _serve(self, record: DeviceRecord, stopping: asyncio.Event) -> End:
        settings = self._settings
        commands = SandboxedCommands(settings.sandbox, settings.workspace.protected_names, self._root)
        person = self._person
        driver = HostDriver(
            self._folder,
            record,
            offers=offered.offers(settings.node.commands, settings.node.ask),
            performer=Capabilities(
                commands=settings.node.commands,
                runner=commands,
                person=person,
                folder=self._root,
                software_version=VERSION,
                open_url_command=settings.node.open_url_command,
                notify_command=settings.node.notify_command,
            ),
            person=person,
            facts=HostFacts(platform=platform_name(), software_version=VERSION),
            clock=SystemClock(),
            draw=random.random,
        )
        for told in self._folder.told:
            person.tell(told)
        person.tell(f"This is device {record.device_id}, {record.device_name}.")
        waiting = asyncio.create_task(_then(stopping, lambda: driver.stop("the host was stopped")))
        try:
            return await driver.run()
        finally:
            waiting.cancel()
            await commands.close()


def status_of(state_dir: StateDir) -> dict[str, Any]:
    """What the device's folder tells, whether its host runs or not."""
    folder = open_folder(state_dir)
    record = folder.load()
    running = folder.is_locked()
    if record is None:
        return {"paired": False, "running": running}
    shown: dict[str, Any] = {
        "paired": record.paired,
        "running": running,
        "name": record.device_name,
        "servers": list(record.servers),
        "told": folder.told,
    }
    if not record.paired:
        return {**shown, "state": "pairing" if record.pairing else "not paired"}
    held = held_certificate(record.certificate_pem, record.generation)
    status = folder.read_status()
    return {
        **shown,
        "device_id": record.device_id,
        "generation": held.generation,
        "renews_at_ms": held.renew_at_ms,
        "certificate_ends_ms": held.not_after_ms,
        "state": status.get("state", "offline") if running else "stopped",
        "since_ms": status.get("since_ms") if running else None,
    }


async def leave(state_dir: StateDir, *, forget_only: bool) -> dict[str, Any]:
    """Ends the pairing at the daemon, then here. ``forget_only`` asks no daemon: for one that is gone for good."""
    folder = open_folder(state_dir)
    if forget_only:
        # A host that runs would go on with the key it holds. A record that cannot be read can still be forgotten.
        folder.lock()
        folder.forget()
        folder.unlock()
        return {"left": True, "told_daemon": False}
    record = folder.load()
    if record is None:
        raise NotPaired("this device is not paired")
    if record.paired:
        await _end_pairing(record)
    folder.forget()
    return {"left": True, "told_daemon": record.paired}


async def _end_pairing(record: DeviceRecord) -> None:
    assert record.key_pem is not None
    credentials = LinkCredentials(
        key_pem=record.key_pem, certificate_pem=record.certificate_pem, ca_bundle_pem=record.ca_bundle_pem
    )
    why = "no address is known"
    for server in record.servers:
        link = GrpcLink(server, credentials)
        try:
            await link.end_pairing(record.device_id, "the device left")
            return
        except LinkLost as lost:
            why = lost.why
        finally:
            await link.close()
    raise DaemonUnreachable(
        f"the daemon could not be told: {why}",
        hint="try again, or `palyra node leave --forget` and have an operator revoke the device",
    )


async def _first_of(work: Any, stopping: asyncio.Event) -> Any:
    """What the work returns, or None where stopping came first."""
    doing = asyncio.ensure_future(work)
    stop = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((doing, stop), return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        for task in (doing, stop):
            task.cancel()
        await asyncio.wait((doing, stop))


async def _then(event: asyncio.Event, act: Any) -> None:
    await event.wait()
    act()
