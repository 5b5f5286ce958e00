"""Workers on the daemon's own machine, for ``palyra up --workers N``: real processes, each with its egress proxy.

They are paired as any other, with codes that this process makes and hands to the children it starts on their standard
input: a request that proved such a code is one of them, and is approved here. Their folders stay for the next time.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from palyra.config.state_dir import StateDir
from palyra.daemon import worker_agent
from palyra.devicelink.pairing.code import PairingMethod
from palyra.errors import Failed
from palyra.fleet.egress import process as egress_process
from palyra.identity.device import DeviceKind
from palyra.nodes.domain.records import PairingState

if TYPE_CHECKING:
    from palyra.daemon.gateway_wiring import Gateway

log = logging.getLogger("palyra.workers")
FOLDER: Final = "local-workers"
POLICY_FILE: Final = "egress-policy.toml"
ACTOR: Final = "palyrad"
# From the start of a child to the end of its pairing, on a machine that is busy.
JOIN_SECONDS: Final = 60.0
# A worker lets its calls end before it does.
STOP_SECONDS: Final = 45.0
_LOOK_SECONDS: Final = 0.05
_WORKER: Final = "palyra.cli.workerd"
_PROXY: Final = "palyra.daemon.egressd"


class NotJoined(Failed):
    code = "local_workers.not_joined"
    hint = "the child's own words are in the daemon's log; remove its folder in local-workers to begin again"


class LocalWorkers:
    def __init__(self, count: int, gateway: "Gateway", *, config: Path | None, say: Callable[[str], None]) -> None:
        self._count = count
        self._gateway = gateway
        self._config = config
        self._say = say
        self._children: list[subprocess.Popen[bytes]] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the workers beside the daemon, which does not wait for them. They end before it."""
        # The path of a socket is short; that of a state directory need not be.
        sockets = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="palyra-"))
        starting = [asyncio.create_task(self._start(number, sockets)) for number in range(1, self._count + 1)]
        for task in starting:
            task.add_done_callback(self._started)
        try:
            yield
        finally:
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)
            await self._stop()
            await asyncio.to_thread(shutil.rmtree, sockets, ignore_errors=True)

    def _started(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._say(f"a local worker could not be started: {error}")

    async def _start(self, number: int, sockets: Path) -> None:
        home = StateDir.open(self._gateway.state.path(f"{FOLDER}/{number}"))
        await self._join(DeviceKind.EGRESS, _PROXY, home, f"local-{number} egress", _is_paired_proxy(home))
        await self._join(DeviceKind.WORKER, _WORKER, home, f"local-{number}", _is_paired_worker(home))
        policy = home.write_atomic(POLICY_FILE, _policy(self._gateway.settings.egress.allowed_hosts))
        socket = sockets / f"{number}.sock"
        proxy = await self._child(_PROXY, home, "run", "--policy", str(policy), "--socket", str(socket))
        assert proxy.stdout is not None
        # Its first line says that it listens.
        await asyncio.to_thread(proxy.stdout.readline)
        await self._child(_WORKER, home, "run", "--egress-socket", str(socket))
        self._say(f"local worker {number} is started")

    async def _join(self, kind: DeviceKind, module: str, home: StateDir, name: str, paired: bool) -> None:
        if paired:
            return
        pairing = (await self._gateway.nodes.opened()).pairing
        made = await pairing.make_code(PairingMethod.QR, kind, actor=ACTOR)
        child = await self._child(module, home, "join", "--code", "-", "--name", name, stdin=made.text.reveal())
        ended = asyncio.ensure_future(asyncio.to_thread(child.wait))
        try:
            async with asyncio.timeout(JOIN_SECONDS):
                while not ended.done():
                    for request in await pairing.pairings(PairingState.PENDING_APPROVAL):
                        if request.code_id == made.record.id and request.kind is kind:
                            await pairing.approve(request.id, actor=ACTOR, reason="started by this daemon")
                    await asyncio.wait([ended], timeout=_LOOK_SECONDS)
        except TimeoutError:
            raise NotJoined(f"{name} did not join in time") from None
        self._children.remove(child)
        if child.returncode != 0:
            raise NotJoined(f"{name} ended with status {child.returncode}")

    async def _child(
        self, module: str, home: StateDir, *words: str, stdin: str | None = None
    ) -> "subprocess.Popen[bytes]":
        options = ["--state-dir", str(home.root)]
        if module == _WORKER and self._config is not None:
            options += ["--config", str(self._config)]
        child = await asyncio.to_thread(_spawn, _log_file(home, module), [module, *options, *words], stdin)
        self._children.append(child)
        return child

    async def _stop(self) -> None:
        """Workers first: their proxies are theirs until the last call has ended."""
        children = self._children[::-1]
        for child in children:
            child.terminate()
        for child in children:
            await asyncio.to_thread(_ended, child)


def _log_file(home: StateDir, module: str) -> Path:
    """Return the last lines that the newest process of a child wrote."""
    return home.path(f"{module.rpartition('.')[2]}.log")


def _spawn(log_file: Path, words: list[str], stdin: str | None) -> "subprocess.Popen[bytes]":
    """Not through the event loop: it forks, and a fork beside gRPC's threads may stop for good before its program."""
    with open(log_file, "wb") as said:
        child = subprocess.Popen(
            [sys.executable, "-m", *words],
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE if stdin is None and words[0] == _PROXY else subprocess.DEVNULL,
            stderr=said,
            env={name: value for name, value in os.environ.items() if name != "PALYRA_STATE_DIR"},
            # Ctrl-C at the terminal is for the daemon, which ends its workers in order.
            start_new_session=True,
        )
    if stdin is not None:
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError), child.stdin:
            child.stdin.write(stdin.encode())
    return child


def _ended(child: "subprocess.Popen[bytes]") -> None:
    try:
        child.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        log.warning("a local worker did not end in time: process %d is killed", child.pid)
        child.kill()
        child.wait()
    if child.stdout is not None:
        child.stdout.close()


def _is_paired_worker(home: StateDir) -> bool:
    record = worker_agent.open_folder(home).load()
    return record is not None and record.paired


def _is_paired_proxy(home: StateDir) -> bool:
    record = egress_process.open_folder(home).load()
    return record is not None and record.paired


def _policy(hosts: tuple[str, ...]) -> bytes:
    """Return the hosts that leases may reach at most: those that the daemon's own programs may."""
    return b"allowed_hosts = " + msgspec.json.encode(list(hosts)) + b"\n"
