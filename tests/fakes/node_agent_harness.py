"""A real node host beside a real daemon's side: its folder, its driver, and a person who answers as the test says."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fakes.eventually import eventually
from fakes.node_server_harness import ByHand, NodeServerHarness
from palyra.config.state_dir import StateDir
from palyra.devicelink.agent.device_folder import DeviceRecord
from palyra.nodes.agent import offered
from palyra.nodes.agent.agent import HostDriver
from palyra.nodes.agent.capabilities import Capabilities
from palyra.nodes.agent.messages import End, Note
from palyra.nodes.agent.note_folder import DeviceFolder
from palyra.nodes.agent.settings import CommandPlan
from palyra.secret import Secret


class FakePerson:
    """Answers what the test says, when it says so."""

    def __init__(self, answer: bool | None = None) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str]] = []
        self.lines: list[str] = []
        self.question_came = asyncio.Event()
        self.taken_back = 0

    async def allows(self, capability: str, shown_input: str) -> bool:
        self.asked.append((capability, shown_input))
        self.question_came.set()
        if self.answer is None:
            try:
                await asyncio.Event().wait()
            finally:
                self.taken_back += 1
        return bool(self.answer)

    def notify(self, title: str, text: str) -> bool:
        self.lines.append(f"{title}: {text}")
        return True

    def tell(self, text: str) -> None:
        self.lines.append(text)


class SlowCommands:
    """Commands that end when the test lets them. What was run is written down."""

    def __init__(self) -> None:
        self.run_words: list[tuple[str, ...]] = []
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.stopped = 0

    async def run(
        self, plan: CommandPlan, words: tuple[str, ...], *, timeout_ms: int, max_output_bytes: int
    ) -> dict[str, Any]:
        self.run_words.append(words)
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        return {"exit_code": 0}


COMMANDS = {
    "press": CommandPlan(argv=("press",), ask=False),
    "poll": CommandPlan(argv=("poll",), ask=False, idempotent=True),
    "door": CommandPlan(argv=("door",)),
}


class Host:
    """One node host; made again on the same folder it is a host that was started again."""

    def __init__(
        self,
        harness: NodeServerHarness,
        root: Path,
        *,
        person: FakePerson | None = None,
        commands: SlowCommands | None = None,
        plans: Mapping[str, CommandPlan] = COMMANDS,
    ) -> None:
        self.harness = harness
        self.person = person or FakePerson()
        self.commands = commands or SlowCommands()
        self.folder = DeviceFolder(StateDir.open(root))
        self.plans = plans
        self.running: asyncio.Task[End] | None = None

    def keep(self, device: ByHand, *, port: int | None = None) -> None:
        """What a finished pairing leaves on the device."""
        self.folder.save(
            DeviceRecord(
                device_name="bench",
                servers=(f"127.0.0.1:{port or self.harness.port}",),
                device_id=device.device_id,
                key_pem=Secret(device.key.pem().decode()),
                certificate_pem=device.issued.certificate_pem.decode(),
                ca_bundle_pem=self.harness.identities.ca_bundle_pem().decode(),
                generation=device.issued.generation,
            )
        )

    @property
    def record(self) -> DeviceRecord:
        record = self.folder.load()
        assert record is not None
        return record

    def notes(self) -> list[Note]:
        """Of a host that runs: what it is writing is left alone."""
        return self.folder.notes(sweep=False)

    def start(self) -> HostDriver:
        self.folder.lock()
        self.driver = driver = HostDriver(
            self.folder,
            self.record,
            offers=offered.list_offers(self.plans, ()),
            performer=Capabilities(
                commands=self.plans,
                runner=self.commands,
                person=self.person,
                folder=Path("/"),
                software_version="1",
            ),
            person=self.person,
            platform="linux",
            software_version="1",
            clock=self.harness.clock,
            draw=random.random,
        )
        self.running = asyncio.create_task(driver.run())
        return driver

    async def kill(self) -> None:
        """As nearly as one can within a process: no farewell, nothing more is written."""
        assert self.running is not None
        self.running.cancel()
        await asyncio.wait([self.running])
        self.folder.unlock()


@asynccontextmanager
async def running_host(harness: NodeServerHarness, root: Path, device: ByHand, **options: Any) -> AsyncIterator[Host]:
    host = Host(harness, root, **options)
    host.keep(device)
    host.start()
    try:
        await online(harness, device)
        yield host
    finally:
        await host.kill()


async def online(harness: NodeServerHarness, device: ByHand) -> None:
    await eventually(lambda: harness.registry.get(device.device_id) is not None)
