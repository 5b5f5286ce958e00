"""Commands of a device's configuration, in the process sandbox of that device."""

import asyncio
import platform
import random
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from palyra.clock import SystemClock
from palyra.config.state_dir import StateDir
from palyra.daemon.process_setup import keep_memory_private
from palyra.daemon.settings import Settings
from palyra.devicelink.agent.device_folder import DaemonUnreachable, DeviceRecord, NotPaired
from palyra.devicelink.agent.identity import HeldIdentity, read_held_certificate
from palyra.devicelink.agent.joining import Joining
from palyra.devicelink.limits import MAX_DEVICE_NAME_CHARS
from palyra.devicelink.pairing.code import DeviceFacts, PairingCode, ServerAddress
from palyra.executors.process.executor import render_outcome
from palyra.identity.device import DeviceKind
from palyra.nodes.agent import offered
from palyra.nodes.agent.agent import HostDriver
from palyra.nodes.agent.capabilities import Capabilities, Person, platform_name
from palyra.nodes.agent.link import GrpcLink, LinkLost
from palyra.nodes.agent.messages import End
from palyra.nodes.agent.note_folder import DeviceFolder
from palyra.nodes.agent.settings import CommandPlan
from palyra.sandbox.domain.process_run import ProcessCommand
from palyra.sandbox.domain.profile import (
    EgressEnforcementMode,
    NewProtectedPolicy,
    SandboxLimits,
    SandboxProfile,
    SandboxTier,
)
from palyra.sandbox.runner import ProcessRunner, RunnerSettings
from palyra.sandbox.settings import SandboxSettings
from palyra.version import VERSION


class SandboxedCommands:
    """Runs commands under the tier and limits of the device's own settings.

    Strict egress gives a command no network at all: a device has no proxy that could serve allowed hosts.
    """

    def __init__(self, settings: SandboxSettings, protected_names: tuple[str, ...], folder: Path) -> None:
        self._settings = settings
        self._protected = protected_names
        self._folder = folder
        self._runner: ProcessRunner | None = None

    async def run(
        self, plan: CommandPlan, words: tuple[str, ...], *, timeout_ms: int, max_output_bytes: int
    ) -> dict[str, Any]:
        workspace = plan.workspace or str(await asyncio.to_thread(self._made, "workspace"))
        profile = self._profile(plan, workspace, timeout_ms, max_output_bytes)
        command = ProcessCommand(command=words[0], args=words[1:], timeout_ms=timeout_ms)
        if self._runner is None:
            scratch = await asyncio.to_thread(self._made, "scratch")
            self._runner = ProcessRunner(
                RunnerSettings(
                    enabled=self._settings.enabled,
                    max_running=self._settings.max_running,
                    max_waiting=self._settings.max_waiting,
                    scratch=str(scratch),
                )
            )
        return render_outcome(await self._runner.run_constrained_process(profile, command))

    async def close(self) -> None:
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await asyncio.shield(runner.close())

    def _profile(self, plan: CommandPlan, workspace: str, timeout_ms: int, max_output_bytes: int) -> SandboxProfile:
        settings = self._settings
        return SandboxProfile(
            workspace_root=workspace,
            tier=SandboxTier(settings.tier),
            read_only=settings.read_only or plan.read_only,
            protected_names=self._protected,
            limits=SandboxLimits(
                cpu_seconds=settings.cpu_seconds,
                memory_bytes=settings.memory_bytes,
                pids=settings.pids,
                open_files=settings.open_files,
                file_bytes=settings.file_bytes,
                max_output_bytes=min(settings.max_output_bytes, max_output_bytes),
                timeout_ms=timeout_ms,
            ),
            egress=EgressEnforcementMode(settings.egress),
            env=tuple(sorted(settings.env.items())),
            allow_interpreters=settings.allow_interpreters or plan.interpreter,
            allowed_executables=settings.allowed_executables or None,
            appearing_protected=NewProtectedPolicy(settings.appearing_protected),
            tool_roots=settings.tool_roots,
        )

    def _made(self, name: str) -> Path:
        path = self._folder / name
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path


# The node host of a device, joined: its folder, its sandbox, its person, and the daemon it belongs to.

FOLDER = "node"


def open_folder(state_dir: StateDir) -> DeviceFolder:
    return DeviceFolder(StateDir.open(state_dir.path(FOLDER)))


class NodeHost:
    """Run the host once. ``person`` is the user of the device."""

    def __init__(self, settings: Settings, state_dir: StateDir, person: Person, *, name: str = "") -> None:
        self._settings = settings
        self._folder = open_folder(state_dir)
        self._root = state_dir.path(FOLDER)
        self._person = person
        chosen = name or settings.node.name or platform.node() or "device"
        self._name = chosen[:MAX_DEVICE_NAME_CHARS]

    async def run(self, code: PairingCode | None, servers: Sequence[ServerAddress]) -> End:
        """Pair if need be, then serve until SIGTERM or SIGINT, or until it cannot go on."""
        keep_memory_private()
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
            f"This device shows the code {comparison_code}. Approve it at the daemon only if it shows the same code:\n"
            f"  palyra pair list\n  palyra pair approve ...\nWaiting for the decision (device {device_id})."
        )

    async def _serve(self, record: DeviceRecord, stopping: asyncio.Event) -> End:
        settings = self._settings
        commands = SandboxedCommands(settings.sandbox, settings.workspace.protected, self._root)
        person = self._person
        driver = HostDriver(
            self._folder,
            record,
            offers=offered.list_offers(settings.node.commands, settings.node.ask),
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
            platform=platform_name(),
            software_version=VERSION,
            clock=SystemClock(),
            draw=random.random,
        )
        for warning in self._folder.warnings:
            person.tell(warning)
        person.tell(f"This is device {record.device_id}, {record.device_name}.")
        waiting = asyncio.create_task(_then(stopping, lambda: driver.stop("the host was stopped")))
        try:
            return await driver.run()
        finally:
            waiting.cancel()
            await commands.close()


def status_of(state_dir: StateDir) -> dict[str, Any]:
    """Return what the device's folder says, whether its host runs or not."""
    folder = open_folder(state_dir)
    record = folder.load()
    running = folder.is_locked()
    if record is None:
        return {"paired": False, "running": running}
    render_outcome: dict[str, Any] = {
        "paired": record.paired,
        "running": running,
        "name": record.device_name,
        "servers": list(record.servers),
        "told": folder.warnings,
    }
    if not record.paired:
        return {**render_outcome, "state": "pairing" if record.pairing else "not paired"}
    held = read_held_certificate(record.certificate_pem, record.generation)
    status = folder.read_status()
    return {
        **render_outcome,
        "device_id": record.device_id,
        "generation": held.generation,
        "renews_at_ms": held.renew_at_ms,
        "certificate_ends_ms": held.not_after_ms,
        "state": status.get("state", "offline") if running else "stopped",
        "since_ms": status.get("since_ms") if running else None,
    }


async def leave(state_dir: StateDir, *, forget_only: bool) -> dict[str, Any]:
    """End the pairing at the daemon, then here. ``forget_only`` leaves out a daemon that is gone."""
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
        await _end_pairing(HeldIdentity(folder, record))
    folder.forget()
    return {"left": True, "told_daemon": record.paired}


async def _end_pairing(identity: HeldIdentity) -> None:
    why = "no address is known"
    for server in identity.servers:
        link = GrpcLink(server, identity.credentials())
        try:
            await link.end_pairing(identity.device_id, "the device left")
            return
        except LinkLost as lost:
            why = lost.why
        finally:
            await link.close()
    raise DaemonUnreachable(
        f"the daemon could not be notified: {why}",
        hint="try again, or `palyra node leave --forget` and have an operator revoke the device",
    )


async def _first_of(work: Any, stopping: asyncio.Event) -> Any:
    """Return the result of the work, or None if stopping came first."""
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
