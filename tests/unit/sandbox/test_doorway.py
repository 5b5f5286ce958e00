"""A call's door through real sandboxes: served before the program starts, gone however the call ends."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.egress_proxy import FakeHandle, FakeNetworkProxy
from fakes.eventually import eventually, eventually_sync
from fakes.foreign_sockets import foreign_sockets
from fakes.processes import own_descriptors
from palyra.errors import PalyraError
from palyra.sandbox import limits
from palyra.sandbox.domain.network import DoorUsage, HostsNeedTierC, ca_environment
from palyra.sandbox.domain.process_run import ProcessCommand, ProcessTimedOut, QuotaExceeded
from palyra.sandbox.domain.profile import (
    EgressEnforcementMode,
    Layer,
    SandboxLimits,
    SandboxProfile,
    SandboxTier,
    UnsupportedPlatform,
)
from palyra.sandbox.network.call_network import OpenedSockets, namespace_of
from palyra.sandbox.runner import ProcessRunner, RunnerSettings

CONNECTED = """
import socket, sys, time
held = socket.create_connection(("a.example", 443), 10)
print("connected", flush=True)
time.sleep(60)
"""


class WatchedDoor(FakeNetworkProxy):
    """Remembers which networks it served."""

    def __init__(self, port: int = 1) -> None:
        super().__init__({("a.example", 443): ("127.0.0.1", port)})
        self.networks: set[int] = set()

    async def opened(self, sockets: OpenedSockets) -> FakeHandle:
        self.networks |= {namespace_of(each.socket) for each in sockets}
        return await super().opened(sockets)


class Bench:
    def __init__(self, base: Path) -> None:
        self.workspace = base / "workspace"
        self.scratch = base / "scratch"
        self.workspace.mkdir()
        self.scratch.mkdir()
        # Nothing is built ahead: what is open after a call was left by it.
        self.runner = ProcessRunner(RunnerSettings(scratch=str(self.scratch), warm=False))
        self.door = WatchedDoor()

    def profile(self, **changes: Any) -> SandboxProfile:
        changes.setdefault("allowed_egress_hosts", ("a.example:443",))
        return SandboxProfile(workspace_root=str(self.workspace), allow_interpreters=True, **changes)

    async def run(self, command: str, *args: str, door: Any = None, **changes: Any) -> Any:
        return await self.runner.run_constrained_process(
            self.profile(**changes), ProcessCommand(command=command, args=args), door=door or self.door
        )

    def wait_in_bubblewrap(self) -> None:
        """As on a machine where no process can wait inside."""

        async def no() -> bool:
            return False

        self.runner.ahead.serves = no  # type: ignore[method-assign]

    def assert_nothing_left(self) -> None:
        """No socket of ours is in a sandbox's network, and no process is: such a network is then gone."""
        assert self.door.networks
        assert foreign_sockets() == []
        eventually_sync(lambda: not self.door.networks & _networks_with_processes())
        assert all(handle.closed for handle in self.door.handles)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    bench = Bench(tmp_path)
    bench.door = WatchedDoor(server.sockets[0].getsockname()[1])
    yield bench
    await bench.runner.close()
    server.close()
    assert os.listdir(bench.scratch) == []


def _networks_with_processes() -> set[int]:
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                found.add(os.stat(f"/proc/{name}/ns/net").st_ino)
    return found


@pytest.mark.parametrize("native", [True, False], ids=["inside", "bubblewrap waits"])
async def test_many_calls_leave_no_descriptor_and_no_network(bench: Bench, native: bool) -> None:
    if not native:
        bench.wait_in_bubblewrap()
    await bench.run("true")
    before = own_descriptors()
    for _ in range(5):
        outcome = await bench.run("true")
        assert outcome.exit_code == 0 and outcome.egress == DoorUsage()
    # Used sandboxes hold two descriptors each until there is a quiet moment.
    assert own_descriptors() <= before + 4
    assert len(bench.door.handles) == 6
    bench.assert_nothing_left()


@pytest.mark.parametrize("how", ["cancelled", "timeout", "quota", "killed", "keeper killed"])
async def test_however_a_call_ends_its_door_is_closed(bench: Bench, how: str) -> None:
    script = CONNECTED + ("print('x' * 100_000)\n" if how == "quota" else "")
    script = script.replace("time.sleep(60)", "time.sleep(0.1)") if how == "quota" else script
    limited = SandboxLimits(timeout_ms=3_000 if how == "timeout" else 60_000, max_output_bytes=20_000)
    connected = asyncio.Event()
    calling = asyncio.ensure_future(
        bench.runner.run_constrained_process(
            bench.profile(limits=limited),
            ProcessCommand(command="python3", args=("-I", "-c", script)),
            sink=lambda *_: connected.set(),
            door=bench.door,
        )
    )
    if how == "cancelled":
        await connected.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
    elif how == "killed":
        await connected.wait()
        os.kill(_sandbox_of(bench.door), signal.SIGKILL)
        assert (await calling).exit_code != 0
    elif how == "keeper killed":
        await connected.wait()
        os.kill(_keeper_of(_sandbox_of(bench.door)), signal.SIGKILL)
        with pytest.raises(PalyraError):
            await calling
    else:
        with pytest.raises(ProcessTimedOut if how == "timeout" else QuotaExceeded) as ended:
            await calling
        assert ended.value.outcome is not None and ended.value.outcome.egress is not None
        assert ended.value.outcome.egress.connections == 1
    bench.assert_nothing_left()


async def test_sandboxes_that_wait_have_their_sockets_and_no_door(bench: Bench) -> None:
    await bench.runner.close()
    bench.runner = ProcessRunner(RunnerSettings(scratch=str(bench.scratch)))
    for call in range(4):
        # It stays for a moment: the door's double counts a connection when it comes to serve it.
        outcome = await bench.run("python3", "-I", "-c", CONNECTED.replace("time.sleep(60)", "time.sleep(0.3)"))
        assert outcome.stdout == b"connected\n", outcome
        assert outcome.egress is not None and outcome.egress.connections == 1
        assert len(bench.door.handles) == call + 1
        await eventually(lambda: bench.runner.ahead.waiting)
    # The last one that waits is there with its sockets, and nobody serves them.
    assert foreign_sockets() and all(handle.closed for handle in bench.door.handles)
    await bench.runner.close()
    bench.assert_nothing_left()


@pytest.mark.parametrize("native", [True, False], ids=["inside", "bubblewrap waits"])
async def test_a_call_that_is_cancelled_at_any_moment_leaves_nothing(bench: Bench, native: bool) -> None:
    if not native:
        bench.wait_in_bubblewrap()
    await bench.run("true")
    before = own_descriptors()
    for step in range(14):
        calling = asyncio.ensure_future(bench.run("sleep", "60"))
        await asyncio.sleep(step * 0.004)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
    assert own_descriptors() <= before + 4
    bench.assert_nothing_left()


async def test_a_program_starts_only_when_its_door_is_served(bench: Bench) -> None:
    marker = bench.workspace / "ran"

    class Slow(WatchedDoor):
        async def opened(self, sockets: OpenedSockets) -> FakeHandle:
            await asyncio.sleep(0.2)
            assert not marker.exists()
            return await super().opened(sockets)

    bench.door = Slow()
    assert (await bench.run("touch", str(marker))).exit_code == 0
    assert marker.exists()


async def test_a_door_that_fails_to_open_keeps_the_program_from_starting(bench: Bench) -> None:
    marker = bench.workspace / "ran"

    class Broken(WatchedDoor):
        async def opened(self, sockets: OpenedSockets) -> FakeHandle:
            self.networks |= {namespace_of(each.socket) for each in sockets}
            raise RuntimeError("no proxy")

    bench.door = Broken()
    with pytest.raises(RuntimeError, match="no proxy"):
        await bench.run("touch", str(marker))
    assert not marker.exists()
    bench.assert_nothing_left()


@pytest.mark.parametrize("how", ["hangs", "raises"])
async def test_a_door_that_does_not_close_is_cut_and_told(
    bench: Bench, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DOOR_CLOSE_SECONDS", 0.2)

    class Stuck(FakeHandle):
        async def close(self) -> DoorUsage:
            await super().close()
            if how == "hangs":
                await asyncio.sleep(60)
            raise RuntimeError("lost")

    class StuckDoor(WatchedDoor):
        async def opened(self, sockets: OpenedSockets) -> FakeHandle:
            self.networks |= {namespace_of(each.socket) for each in sockets}
            handle = Stuck(self)
            self.handles.append(handle)
            await handle.serve(sockets)
            return handle

    bench.door = StuckDoor()
    outcome = await bench.run("true")
    line = outcome.receipt.line(Layer.EGRESS)
    assert outcome.exit_code == 0 and outcome.egress is None and not line.held and "did not close" in line.got
    bench.assert_nothing_left()


async def test_sockets_that_are_not_as_planned_keep_the_program_from_starting(bench: Bench) -> None:
    """A door that closes what it was given: what is looked at then is no longer what was opened."""
    marker = bench.workspace / "ran"

    class Meddling(WatchedDoor):
        async def opened(self, sockets: OpenedSockets) -> FakeHandle:
            handle = await super().opened(sockets)
            for each in sockets:
                each.socket.setsockopt(1, 15, 1)  # SO_REUSEPORT
            return handle

    bench.door = Meddling()
    bench.wait_in_bubblewrap()
    with pytest.raises(UnsupportedPlatform, match="can be bound over"):
        await bench.run("touch", str(marker))
    assert not marker.exists()
    bench.assert_nothing_left()


async def test_without_a_door_hosts_are_refused_and_no_hosts_are_not(bench: Bench) -> None:
    with pytest.raises(UnsupportedPlatform) as refused:
        await bench.runner.run_constrained_process(bench.profile(), ProcessCommand(command="true"))
    assert refused.value.details["layers"] == ["egress"]
    with pytest.raises(HostsNeedTierC):
        await bench.run("true", tier=SandboxTier.B)
    assert bench.door.handles == []
    unshut: list[dict[str, Any]] = [{"allowed_egress_hosts": ()}, {"egress": EgressEnforcementMode.PREFLIGHT}]
    for changes in unshut:
        outcome = await bench.run("true", **changes)
        assert outcome.exit_code == 0 and outcome.egress is None
    assert bench.door.handles == []


async def test_files_of_the_calls_own_are_shown_and_cannot_be_changed(bench: Bench) -> None:
    path = "/etc/palyra/ca-bundle.pem"
    outcome = await bench.run(
        "sh",
        "-c",
        'cat "$SSL_CERT_FILE"; echo "$CURL_CA_BUNDLE"; echo x > "$SSL_CERT_FILE"; rm -f "$SSL_CERT_FILE"; '
        "echo x > /etc/palyra/other; cat /etc/palyra/other",
        extra_files=((path, b"certificates\n" * 20_000), ("/etc/palyra/note", b"")),
        env=ca_environment(path),
        limits=SandboxLimits(max_output_bytes=1_000_000),
    )
    assert outcome.stdout == b"certificates\n" * 20_000 + path.encode() + b"\n"
    assert outcome.stderr.count(b"Read-only file system") == 3
    assert outcome.receipt.line(Layer.MINIMAL_ROOT).held


def _sandbox_of(door: WatchedDoor) -> int:
    """The outermost process in the network that the door serves."""
    inside = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}/ns/net").st_ino in door.networks:
                    inside.append(int(name))
    return min(inside)


def _keeper_of(pid: int) -> int:
    while Path(f"/proc/{pid}/comm").read_text().strip() != "palyra-keeper":
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid
