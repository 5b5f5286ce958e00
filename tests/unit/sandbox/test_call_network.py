"""A call's network through real sandboxes: served before the program starts, gone however the call ends."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.egress_proxy import FakeHandle, FakeNetworkProxy
from fakes.eventually import eventually, eventually_sync
from fakes.foreign_sockets import foreign_sockets
from fakes.isolated import planned, profile_of, start, wait_for_description
from fakes.processes import descendants, own_descriptors
from palyra.errors import PalyraError
from palyra.sandbox import limits
from palyra.sandbox.domain.network import (
    HostsNeedTierC,
    ListenerKind,
    NetworkPlan,
    NetworkSeen,
    NetworkUsage,
    build_ca_environment,
    judge_network,
)
from palyra.sandbox.domain.process_run import ProcessCommand, ProcessTimedOut, QuotaExceeded
from palyra.sandbox.domain.profile import (
    EgressEnforcementMode,
    Layer,
    SandboxLimits,
    SandboxProfile,
    SandboxTier,
    UnsupportedPlatform,
)
from palyra.sandbox.launch.gated_sandbox import Gate, GatedReadback
from palyra.sandbox.network.call_network import NamespaceSockets, OpenedSockets, SocketsNotOpened, read_namespace
from palyra.sandbox.runner import ProcessRunner, RunnerSettings
from palyra.sandbox.verify.readback import NotBuilt

CONNECTED = """
import socket, sys, time
held = socket.create_connection(("a.example", 443), 10)
print("connected", flush=True)
time.sleep(60)
"""


class WatchedListener(FakeNetworkProxy):
    """Remembers which networks it served."""

    def __init__(self, port: int = 1) -> None:
        super().__init__({("a.example", 443): ("127.0.0.1", port)})
        self.networks: set[int] = set()

    async def serve(self, sockets: OpenedSockets) -> FakeHandle:
        self.networks |= {read_namespace(each.socket) for each in sockets}
        return await super().serve(sockets)


class Bench:
    def __init__(self, base: Path) -> None:
        self.workspace = base / "workspace"
        self.scratch = base / "scratch"
        self.workspace.mkdir()
        self.scratch.mkdir()
        # Nothing is built ahead: what is open after a call was left by it.
        self.runner = ProcessRunner(RunnerSettings(scratch=str(self.scratch), prewarm=False))
        self.listener = WatchedListener()

    def profile(self, **changes: Any) -> SandboxProfile:
        changes.setdefault("allowed_egress_hosts", ("a.example:443",))
        return SandboxProfile(workspace_root=str(self.workspace), allow_interpreters=True, **changes)

    async def run(self, command: str, *args: str, listener: Any = None, **changes: Any) -> Any:
        return await self.runner.run_constrained_process(
            self.profile(**changes), ProcessCommand(command=command, args=args), listener=listener or self.listener
        )

    def wait_in_bubblewrap(self) -> None:
        """As on a machine where no process can wait inside."""

        async def no() -> bool:
            return False

        self.runner._launcher.runs_native = no  # type: ignore[method-assign]

    def assert_nothing_left(self) -> None:
        """No socket of ours is in a sandbox's network, and no process is: such a network is then gone."""
        assert self.listener.networks
        assert foreign_sockets() == []
        eventually_sync(lambda: not self.listener.networks & _networks_with_processes())
        assert all(handle.closed for handle in self.listener.handles)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    bench = Bench(tmp_path)
    bench.listener = WatchedListener(server.sockets[0].getsockname()[1])
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
        assert outcome.exit_code == 0 and outcome.egress == NetworkUsage()
    # Used sandboxes hold two descriptors each until there is a quiet moment.
    assert own_descriptors() <= before + 4
    assert len(bench.listener.handles) == 6
    bench.assert_nothing_left()


@pytest.mark.parametrize("how", ["cancelled", "timeout", "quota", "killed", "supervisor killed"])
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
            listener=bench.listener,
        )
    )
    if how == "cancelled":
        await connected.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
    elif how == "killed":
        await connected.wait()
        os.kill(_sandbox_of(bench.listener), signal.SIGKILL)
        assert (await calling).exit_code != 0
    elif how == "supervisor killed":
        await connected.wait()
        os.kill(_supervisor_of(_sandbox_of(bench.listener)), signal.SIGKILL)
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
        # It stays for a moment: the listener's double counts a connection when it comes to serve it.
        outcome = await bench.run("python3", "-I", "-c", CONNECTED.replace("time.sleep(60)", "time.sleep(0.3)"))
        assert outcome.stdout == b"connected\n", outcome
        assert outcome.egress is not None and outcome.egress.connections == 1
        assert len(bench.listener.handles) == call + 1
        await eventually(lambda: bench.runner.prewarm.waiting)
    # The last one that waits is there with its sockets, and nobody serves them.
    assert foreign_sockets() and all(handle.closed for handle in bench.listener.handles)
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

    class Slow(WatchedListener):
        async def serve(self, sockets: OpenedSockets) -> FakeHandle:
            await asyncio.sleep(0.2)
            assert not marker.exists()
            return await super().serve(sockets)

    bench.listener = Slow()
    assert (await bench.run("touch", str(marker))).exit_code == 0
    assert marker.exists()


async def test_a_door_that_fails_to_open_keeps_the_program_from_starting(bench: Bench) -> None:
    marker = bench.workspace / "ran"

    class Broken(WatchedListener):
        async def serve(self, sockets: OpenedSockets) -> FakeHandle:
            self.networks |= {read_namespace(each.socket) for each in sockets}
            raise RuntimeError("no proxy")

    bench.listener = Broken()
    with pytest.raises(RuntimeError, match="no proxy"):
        await bench.run("touch", str(marker))
    assert not marker.exists()
    bench.assert_nothing_left()


@pytest.mark.parametrize("how", ["hangs", "raises"])
async def test_a_door_that_does_not_close_is_cut_and_told(
    bench: Bench, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LISTENER_CLOSE_SECONDS", 0.2)

    class Stuck(FakeHandle):
        async def close(self) -> NetworkUsage:
            await super().close()
            if how == "hangs":
                await asyncio.sleep(60)
            raise RuntimeError("lost")

    class StuckListener(WatchedListener):
        async def serve(self, sockets: OpenedSockets) -> FakeHandle:
            self.networks |= {read_namespace(each.socket) for each in sockets}
            handle = Stuck(self)
            self.handles.append(handle)
            await handle.serve(sockets)
            return handle

    bench.listener = StuckListener()
    outcome = await bench.run("true")
    line = outcome.receipt.line(Layer.EGRESS)
    assert outcome.exit_code == 0 and outcome.egress is None and not line.held and "did not close" in line.got
    bench.assert_nothing_left()


async def test_sockets_that_are_not_as_planned_keep_the_program_from_starting(bench: Bench) -> None:
    """A listener that closes its sockets: the look afterwards finds other ones than were opened."""
    marker = bench.workspace / "ran"

    class Meddling(WatchedListener):
        async def serve(self, sockets: OpenedSockets) -> FakeHandle:
            handle = await super().serve(sockets)
            for each in sockets:
                each.socket.setsockopt(1, 15, 1)  # SO_REUSEPORT
            return handle

    bench.listener = Meddling()
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
    assert bench.listener.handles == []
    unshut: list[dict[str, Any]] = [{"allowed_egress_hosts": ()}, {"egress": EgressEnforcementMode.PREFLIGHT}]
    for changes in unshut:
        outcome = await bench.run("true", **changes)
        assert outcome.exit_code == 0 and outcome.egress is None
    assert bench.listener.handles == []


async def test_files_of_the_calls_own_are_shown_and_cannot_be_changed(bench: Bench) -> None:
    path = "/etc/palyra/ca-bundle.pem"
    outcome = await bench.run(
        "sh",
        "-c",
        'cat "$SSL_CERT_FILE"; echo "$CURL_CA_BUNDLE"; echo x > "$SSL_CERT_FILE"; rm -f "$SSL_CERT_FILE"; '
        "echo x > /etc/palyra/other; cat /etc/palyra/other",
        extra_files=((path, b"certificates\n" * 20_000), ("/etc/palyra/note", b"")),
        env=build_ca_environment(path),
        limits=SandboxLimits(max_output_bytes=1_000_000),
    )
    assert outcome.stdout == b"certificates\n" * 20_000 + path.encode() + b"\n"
    assert outcome.stderr.count(b"Read-only file system") == 3
    assert outcome.receipt.line(Layer.MINIMAL_ROOT).held


def _sandbox_of(listener: WatchedListener) -> int:
    """The outermost process in the network that the listener serves."""
    inside = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}/ns/net").st_ino in listener.networks:
                    inside.append(int(name))
    return min(inside)


def _supervisor_of(pid: int) -> int:
    while Path(f"/proc/{pid}/comm").read_text().strip() != "palyra-superv":
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


PLAN = NetworkPlan(ports=(80, 443, 8443))


@contextlib.contextmanager
def built_sandbox(base: Path, **changes: object) -> Iterator[GatedReadback]:
    plan = planned(profile_of(base, **changes), ["/usr/bin/true"])
    with Gate() as gate:
        process = start(plan, gate)
        pid = 0
        try:
            info = wait_for_description(gate)
            pid = int(info["child-pid"])
            with GatedReadback(info) as waiting:
                yield waiting
        finally:
            if pid:
                # bubblewrap may have buried it already.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.kill()
            process.communicate()


@pytest.fixture
async def client() -> AsyncIterator[NamespaceSockets]:
    client = NamespaceSockets()
    yield client
    await client.close()


async def open_again(client: NamespaceSockets, network: int, owner: int) -> None:
    """Whoever opened them before has its own copies for another moment."""

    async def is_open() -> bool:
        with contextlib.suppress(SocketsNotOpened):
            (await client.open(PLAN, network, owner)).close()
            return True
        return False

    await eventually(is_open)


async def test_they_listen_in_the_sandboxs_network_and_nowhere_else(client: NamespaceSockets, tmp_path: Path) -> None:
    with built_sandbox(tmp_path) as waiting:
        with waiting.network() as (network, owner):
            number = os.fstat(network).st_ino
            opened = await client.open(PLAN, network, owner)
        with contextlib.closing(opened):
            waiting.settle()
            seen = NetworkSeen(
                listeners=opened.seen(),
                loopback_up=opened.loopback_up(),
                routes=await asyncio.to_thread(waiting.routes),
            )
            assert judge_network(PLAN, seen, namespace=number, interfaces=("lo",)) == []
            assert [each.getsockname()[1] for each in opened.of(ListenerKind.TRANSPARENT)] == [80, 443, 8443]
            assert all(read_namespace(each.socket) == number for each in opened)
            assert len(foreign_sockets()) == 6
            with socket.socket() as here:
                # The host's own ports are as free as before.
                here.bind(("127.0.0.1", 0))
                assert read_namespace(here) != number
        assert foreign_sockets() == []


async def test_a_sandbox_with_the_hosts_network_is_not_entered(client: NamespaceSockets, tmp_path: Path) -> None:
    shared = built_sandbox(tmp_path, egress=EgressEnforcementMode.NONE)
    with shared as waiting, pytest.raises(NotBuilt, match="no network of its own"), waiting.network():
        pass
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        with pytest.raises(SocketsNotOpened, match="host's own network"):
            await client.open(PLAN, own, own)
    finally:
        os.close(own)


async def test_a_sandbox_that_ended_has_no_network(tmp_path: Path) -> None:
    with built_sandbox(tmp_path) as waiting:
        os.kill(waiting.pid, signal.SIGKILL)
        await eventually(lambda: waiting.pid not in _living())
        with pytest.raises(NotBuilt, match="could not be reached"), waiting.network():
            pass


def helper_pid(client: NamespaceSockets) -> int | None:
    return client._process.pid if client._process is not None else None


async def test_a_port_that_is_taken_is_told(client: NamespaceSockets, tmp_path: Path) -> None:
    with built_sandbox(tmp_path) as waiting, waiting.network() as (network, owner):
        first = await client.open(PLAN, network, owner)
        with contextlib.closing(first), pytest.raises(SocketsNotOpened, match="Address already in use") as refused:
            await client.open(PLAN, network, owner)
        assert refused.value.details["errno"]
        # Those of the second order that did open are gone again.
        await open_again(client, network, owner)


async def test_a_helper_that_was_killed_is_started_again(client: NamespaceSockets, tmp_path: Path) -> None:
    with built_sandbox(tmp_path) as waiting, waiting.network() as (network, owner):
        for _ in range(3):
            await open_again(client, network, owner)
            killed = helper_pid(client)
            assert killed is not None
            below = descendants(killed)
            os.kill(killed, signal.SIGKILL)
            await eventually(lambda below=below: not (below & _living()))
        await open_again(client, network, owner)
        assert helper_pid(client) != killed


async def test_whoever_stops_waiting_leaves_nothing_open(client: NamespaceSockets, tmp_path: Path) -> None:
    with built_sandbox(tmp_path) as waiting, waiting.network() as (network, owner):
        await client.start()
        before = len(os.listdir("/proc/self/fd"))
        for turns in range(6):
            opening = asyncio.ensure_future(client.open(PLAN, network, owner))
            for _ in range(turns):
                await asyncio.sleep(0)
            opening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                (await opening).close()
        assert len(os.listdir("/proc/self/fd")) == before
        assert foreign_sockets() == []
        await open_again(client, network, owner)


async def test_its_processes_end_with_it(tmp_path: Path) -> None:
    client = NamespaceSockets(ready=3)
    await asyncio.gather(client.start(), client.start())
    pid = helper_pid(client)
    assert pid is not None
    await eventually(lambda: len(descendants(pid)) == 3)
    below = descendants(pid)
    await client.close()
    await eventually(lambda: not (({pid} | below) & _living()))
    with pytest.raises(SocketsNotOpened):
        await client.start()


async def test_a_helper_that_cannot_be_started_is_told() -> None:
    client = NamespaceSockets(python="/nonexistent/python")
    for _ in range(2):
        with pytest.raises(SocketsNotOpened, match="could not be started"):
            await client.start()
    await client.close()


def _living() -> set[int]:
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] != "Z":
                    found.add(int(name))
    return found
