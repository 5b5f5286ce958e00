"""A worker against its egress proxy: a process of its own that has the daemon's word and needs none of the worker's.

Real parts throughout: the program `palyra-egressd`, Tier C sandboxes, mutual TLS, the fleet's ledger on disk.
"""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.egress_fleet import PATIENCE, EgressFleet, ProxyProcess, egress_fleet, listening
from fakes.eventually import eventually
from fakes.fleet_peers import OTHER, WORKER
from fakes.node_server_harness import ByHand
from fakes.ordinary_user import NOBODY, as_ordinary_user
from fakes.served_host import FORBIDDEN_PORT, ServedHost, served_host
from palyra.clock import SystemClock
from palyra.daemon.egressd import read_policy
from palyra.errors import PalyraError, RemoteError
from palyra.fleet.domain import commands
from palyra.fleet.domain.lease import LeaseState, WorkerLease
from palyra.fleet.domain.worker import WorkerLifecycleState as State
from palyra.fleet.domain.worker import WorkerRecord
from palyra.fleet.egress.handover_client import ProxyOfWorker
from palyra.fleet.egress.leases import LeaseRef
from palyra.sandbox.domain.process_run import ProcessCommand, ProcessOutcome
from palyra.sandbox.domain.profile import SandboxLimits, SandboxProfile
from palyra.sandbox.limits import SANDBOX_PROXY_PORT
from palyra.sandbox.runner import ProcessRunner, RunnerSettings

pytestmark = pytest.mark.promise("P-worker-network")

HOST = "allowed.test"
POLICY = """
allowed_hosts = ["allowed.test"]
private_targets = ["allowed.test"]
[static_hosts]
"allowed.test" = ["{address}"]
"""
FETCH = "import urllib.request; print(urllib.request.urlopen('http://{host}/repo.git/HEAD', timeout=20).read())"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHost]:
    with served_host(tmp_path_factory.mktemp("served"), HOST) as found:
        yield found


class Harness:
    """A worker that is attested and bound to its proxy's process, and says nothing more."""

    def __init__(
        self,
        base: Path,
        fleet: EgressFleet,
        device: ByHand,
        policy: Path,
        *,
        process: ProxyProcess | None = None,
        where: Path | None = None,
    ) -> None:
        self.base = base
        self.fleet = fleet
        self.device = device
        self.policy = policy
        self.path = where or base / "egress.sock"
        self.home = base / "proxy"
        self.process = process or ProxyProcess(fleet.install(device), policy, self.path)
        self.proxy = ProxyOfWorker(self.path)
        (base / "workspace").mkdir()
        (base / "scratch").mkdir()
        self.runner = ProcessRunner(RunnerSettings(scratch=str(base / "scratch")))

    async def attested(self) -> WorkerRecord:
        worker = await self.fleet.connect()
        egress_id, signed = await self.proxy.binding(WORKER, worker.nonce)
        assert egress_id == self.device.device_id
        return await self.fleet.attest(worker, self.device, signed)

    async def run(self, lease: WorkerLease, script: str, **limits: Any) -> ProcessOutcome:
        """The tool of a lease, in its own sandbox, as the worker's agent runs it."""
        (self.base / "workspace" / "script.py").write_text(script)
        profile = SandboxProfile(
            workspace_root=str(self.base / "workspace"),
            allowed_egress_hosts=await self.proxy.hosts(lease.lease_id, lease.fence),
            allow_interpreters=True,
            limits=SandboxLimits(timeout_ms=60_000),
        )
        return await self.runner.run_constrained_process(
            profile,
            ProcessCommand(command="/usr/bin/python3", args=("-I", "script.py")),
            listener=self.proxy.network(lease.lease_id, lease.fence),
        )

    def restart(self) -> None:
        self.proxy.close()
        self.process.stop()
        self.process = ProxyProcess(self.home, self.policy, self.path)
        self.proxy = ProxyOfWorker(self.path)

    async def close(self) -> None:
        self.proxy.close()
        await self.runner.close()
        self.process.stop()


@pytest.fixture
async def harness(tmp_path: Path, host: ServedHost) -> AsyncIterator[Harness]:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY.format(address=host.address))
    async with egress_fleet(tmp_path, read_policy(policy)) as fleet:
        made = Harness(tmp_path, fleet, await fleet.pair(), policy)
        try:
            yield made
        finally:
            await made.close()


async def test_a_lease_reaches_what_the_daemon_granted_and_nobody_is_blamed(harness: Harness, host: ServedHost) -> None:
    await harness.attested()
    lease = await harness.fleet.lease(harness.device, (HOST,))
    outcome = await harness.run(lease, FETCH.format(host=HOST))
    assert outcome.exit_code == 0 and b"refs/heads/main" in outcome.stdout, outcome.stderr
    assert harness.fleet.ledger.worker(WORKER).state is State.BUSY
    assert not harness.fleet.events("worker.violation_reported")


async def test_a_forbidden_host_quarantines_the_worker_though_it_says_nothing(
    harness: Harness, host: ServedHost
) -> None:
    await harness.attested()
    lease = await harness.fleet.lease(harness.device, (HOST,))
    before = len(host.arrived())
    outcome = await harness.run(lease, FETCH.format(host="evil.test"))
    assert outcome.exit_code != 0
    worker = await harness.fleet.quarantined()
    assert worker.reason == "worker.egress_violation"
    (reported, *_) = harness.fleet.events("worker.violation_reported")
    assert reported["violation"].startswith("egress.host_not_allowed evil.test")
    assert lease.lease_id in reported["violation"] and reported["egress_id"] == harness.device.device_id
    assert len(host.arrived()) == before
    # A restart of the daemon, or a fresh attestation, does not undo it: a person does.
    again = await harness.fleet.connect()
    assert again.state is State.QUARANTINED
    _, signed = await harness.proxy.binding(WORKER, again.nonce)
    with pytest.raises(PalyraError):
        await harness.fleet.attest(again, harness.device, signed)
    await harness.fleet.ledger.decide(commands.ReleaseWorker(actor="user:operator", worker_id=WORKER))
    released = await harness.fleet.connect()
    _, signed = await harness.proxy.binding(WORKER, released.nonce)
    assert (await harness.fleet.attest(released, harness.device, signed)).state is State.AVAILABLE


async def test_another_port_of_an_allowed_host_and_its_address_are_seen_too(harness: Harness, host: ServedHost) -> None:
    await harness.attested()
    lease = await harness.fleet.lease(harness.device, (HOST,))
    where = f"{host.address}:{FORBIDDEN_PORT}"
    script = f"""
import socket
with socket.create_connection(("127.0.0.1", {SANDBOX_PROXY_PORT}), 10) as c:
    c.sendall(b"CONNECT {where} HTTP/1.1\\r\\nHost: {where}\\r\\n\\r\\n")
    print(c.recv(200))
"""
    outcome = await harness.run(lease, script)
    assert b" 200 " not in outcome.stdout and outcome.stdout, outcome.stderr
    assert (await harness.fleet.quarantined()).reason == "worker.egress_violation"
    assert not [each for each in host.arrived() if each.get("port") == FORBIDDEN_PORT]


async def test_a_violation_seen_while_the_daemon_is_away_is_reported_later(harness: Harness) -> None:
    await harness.attested()
    lease = await harness.fleet.lease(harness.device, (HOST,))
    await harness.proxy.hosts(lease.lease_id, lease.fence)
    await harness.fleet.stop_listening()
    await harness.run(lease, FETCH.format(host="evil.test"))
    # The proxy is killed as well: what it saw is on disk.
    harness.process.process.kill()
    harness.process.process.wait(PATIENCE)
    assert harness.fleet.ledger.worker(WORKER).state is State.BUSY
    await harness.fleet.listen()
    harness.restart()
    assert harness.process.said["unreported"] >= 1
    assert (await harness.fleet.quarantined()).reason == "worker.egress_violation"
    await eventually(lambda: not (harness.home / "egress" / "violations.v1.jsonl").stat().st_size)


@pytest.mark.parametrize("received_first", ["worker", "proxy"])
async def test_a_clean_report_of_the_worker_does_not_outweigh_what_its_proxy_saw(
    harness: Harness, received_first: str
) -> None:
    """The worker signs that the call went well and left nothing behind: once before its proxy was heard, once after."""
    worker = await harness.attested()
    lease = await harness.fleet.lease(harness.device, (HOST,))
    assert await harness.proxy.hosts(lease.lease_id, lease.fence) == (HOST,)
    if received_first == "worker":
        await harness.fleet.stop_listening()
    await harness.run(lease, FETCH.format(host="evil.test"))
    clean = harness.fleet.harness.settle(lease, SystemClock().now_ms(), worker.session)
    if received_first == "worker":
        settled = await harness.fleet.ledger.decide(clean)
        assert settled.worker is not None and settled.worker.state is State.AVAILABLE
        await harness.fleet.listen()
        await harness.fleet.quarantined()
    else:
        await harness.fleet.quarantined()
        with pytest.raises(PalyraError) as refused:
            await harness.fleet.ledger.decide(clean)
        assert refused.value.code == "worker.stale_session"
        assert harness.fleet.ledger.lease(lease.lease_id).state is LeaseState.FENCED
    assert harness.fleet.ledger.worker(WORKER).reason == "worker.egress_violation"


async def test_what_the_daemon_did_not_grant_is_refused(harness: Harness) -> None:
    await harness.attested()
    lease = await harness.fleet.lease(harness.device, (HOST,))
    await harness.proxy.hosts(lease.lease_id, lease.fence)
    for lease_id, fence, code in (
        (f"{77:026d}", 1, "worker_egress.not_granted"),
        (lease.lease_id, lease.fence + 1, "worker_egress.stale_fence"),
    ):
        with pytest.raises(RemoteError) as refused:
            await harness.proxy.hosts(lease_id, fence)
        assert refused.value.remote_code == code
    # A grant beyond the proxy's own policy: the narrower of the two holds, and the whole lease gets no door.
    wide = await harness.fleet.lease(harness.device, (HOST, "other.test"))
    with pytest.raises(RemoteError) as beyond:
        await harness.proxy.hosts(wide.lease_id, wide.fence)
    assert beyond.value.remote_code == "worker_egress.beyond_policy"


async def test_a_profile_with_more_hosts_than_were_granted_reaches_no_more(harness: Harness, host: ServedHost) -> None:
    """The worker opens its sandbox's sockets for any host it likes; the proxy serves them for what was granted."""
    await harness.attested()
    lease = await harness.fleet.lease(harness.device, ())
    (harness.base / "workspace" / "script.py").write_text(FETCH.format(host=HOST))
    profile = SandboxProfile(
        workspace_root=str(harness.base / "workspace"),
        allowed_egress_hosts=(HOST,),
        allow_interpreters=True,
        limits=SandboxLimits(timeout_ms=60_000),
    )
    before = len(host.arrived())
    outcome = await harness.runner.run_constrained_process(
        profile,
        ProcessCommand(command="/usr/bin/python3", args=("-I", "script.py")),
        listener=harness.proxy.network(lease.lease_id, lease.fence),
    )
    assert outcome.exit_code != 0 and len(host.arrived()) == before
    await harness.fleet.quarantined()


async def test_an_ended_lease_is_cut_and_its_door_opens_no_more(harness: Harness, host: ServedHost) -> None:
    await harness.attested()
    lease = await harness.fleet.lease(harness.device, (HOST,))
    script = f"""
import socket
with socket.create_connection(("{HOST}", 443), 20) as c:
    print("connected", flush=True)
    open("connected", "w").close()
    # Held open by us, in the middle of a greeting; only the proxy ends it.
    c.sendall(bytes.fromhex("1603010200"))
    try:
        print("ended", c.recv(10))
    except OSError as error:
        print("ended", error)
"""
    running = asyncio.create_task(harness.run(lease, script))
    await eventually(lambda: (harness.base / "workspace" / "connected").exists())
    harness.fleet.grants.end(lease.lease_id)
    outcome = await running
    assert b"connected" in outcome.stdout and b"ended" in outcome.stdout, outcome.stderr
    with pytest.raises(RemoteError) as over:
        await harness.proxy.hosts(lease.lease_id, lease.fence)
    assert over.value.remote_code == "worker_egress.lease_over"
    # It came in the middle of honest work: nobody is blamed for it.
    assert harness.fleet.ledger.worker(WORKER).state is State.BUSY


async def test_a_binding_answers_one_challenge_of_one_worker(harness: Harness) -> None:
    worker = await harness.fleet.connect()
    _, signed = await harness.proxy.binding(WORKER, worker.nonce)
    assert (await harness.fleet.attest(worker, harness.device, signed)).state is State.AVAILABLE
    again = await harness.fleet.connect()
    with pytest.raises(PalyraError) as replayed:
        await harness.fleet.attest(again, harness.device, signed)
    assert replayed.value.code == "egress_binding.wrong_worker"
    assert (await harness.fleet.quarantined()).reason == "egress_binding.wrong_worker"
    # For another worker the proxy signs nothing, after a restart neither.
    for _ in range(2):
        with pytest.raises(RemoteError) as other:
            await harness.proxy.binding(OTHER, again.nonce)
        assert other.value.remote_code == "worker_egress.other_worker"
        harness.restart()


async def test_a_socket_of_the_workers_own_network_is_no_door(harness: Harness) -> None:
    await harness.attested()
    lease = await harness.fleet.lease(harness.device, (HOST,))
    await harness.proxy.hosts(lease.lease_id, lease.fence)
    client, ref = await harness.proxy.connected(), LeaseRef(lease.lease_id, lease.fence)
    with listening() as open_to_all, pytest.raises(RemoteError) as refused:
        await client.open(ref, [("proxy", open_to_all)])
    assert refused.value.remote_code == "worker_egress.bad_socket"
    left, right = socket.socketpair()
    with left, right, pytest.raises(RemoteError) as refused:
        await client.open(ref, [("proxy", left)])
    assert refused.value.remote_code == "worker_egress.bad_socket"
    # The lease is unharmed.
    assert (await harness.run(lease, FETCH.format(host=HOST))).exit_code == 0


ASK = """
import contextlib, socket, sys
c = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
c.settimeout(20)
try:
    c.connect(sys.argv[1])
except OSError as error:
    print("refused", error)
else:
    # It may have hung up already; what it said last is still to be read, after word of that.
    with contextlib.suppress(OSError):
        c.send(b'{"ask":"bind","id":1,"worker_id":"w","nonce":"n"}')
    for _ in range(2):
        with contextlib.suppress(ConnectionResetError):
            print(c.recv(4096).decode())
            break
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
@pytest.mark.parametrize("shared", [False, True])
async def test_another_user_cannot_talk_to_the_socket(tmp_path: Path, host: ServedHost, shared: bool) -> None:
    """By the file's mode where the worker is of the proxy's own user, else by the kernel's word of who connected."""
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY.format(address=host.address))
    async with egress_fleet(tmp_path, read_policy(policy)) as fleet:
        home = fleet.install(await fleet.pair())
        with tempfile.TemporaryDirectory(prefix="egress-socket-") as folder:
            os.chmod(folder, 0o755)
            where = Path(folder) / "egress.sock"
            uids = ("--worker-uid", "0", "--worker-uid", "4242") if shared else ()
            process = ProxyProcess(home, policy, where, *uids)
            try:
                stage = Path(folder) / "stage"
                stage.mkdir()
                words = [*as_ordinary_user(stage), sys.executable, "-I", "-c", ASK, str(where)]
                said = await asyncio.to_thread(
                    lambda: subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
                )
                if shared:
                    assert "worker_egress.wrong_user" in said.stdout, said
                    assert f"{NOBODY}" in said.stdout
                else:
                    assert said.stdout.startswith("refused"), said
                # The worker's own user still can.
                way = ProxyOfWorker(where)
                assert (await way.binding(WORKER, "n"))[0] == process.said["egress_id"]
                way.close()
            finally:
                process.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
async def test_a_proxy_of_another_user_serves_the_worker_and_keeps_its_key(host: ServedHost) -> None:
    """As it is meant to be run: the proxy is nobody's, the worker another's, and only sockets pass between them."""
    with tempfile.TemporaryDirectory(prefix="egress-users-") as folder:
        base = Path(folder)
        os.chmod(base, 0o755)
        policy = base / "policy.toml"
        policy.write_text(POLICY.format(address=host.address))
        (base / "run").mkdir()
        (base / "stage").mkdir()
        async with egress_fleet(base, read_policy(policy)) as fleet:
            device = await fleet.pair()
            home = fleet.install(device)
            for each in (home, *home.rglob("*"), base / "run"):
                os.chown(each, NOBODY, NOBODY)
            where = base / "run" / "egress.sock"
            before = as_ordinary_user(base / "stage")
            process = ProxyProcess(home, policy, where, "--worker-uid", "0", before=before)
            harness = Harness(base, fleet, device, policy, process=process, where=where)
            try:
                await harness.attested()
                lease = await fleet.lease(device, (HOST,))
                outcome = await harness.run(lease, FETCH.format(host=HOST))
                assert outcome.exit_code == 0 and b"refs/heads/main" in outcome.stdout, outcome.stderr
                await harness.run(lease, FETCH.format(host="evil.test"))
                assert (await fleet.quarantined()).reason == "worker.egress_violation"
                for each in (home / "egress").iterdir():
                    found = each.stat()
                    assert found.st_uid == NOBODY and not found.st_mode & 0o077, each
            finally:
                await harness.close()


async def test_one_process_of_the_worker_at_a_time(harness: Harness) -> None:
    await harness.attested()
    second = ProxyOfWorker(harness.path)
    with pytest.raises(RemoteError) as refused:
        await second.binding(WORKER, "n")
    assert refused.value.remote_code == "worker_egress.another_connected"
    harness.proxy.close()
    third = ProxyOfWorker(harness.path)

    async def is_let_in() -> bool:
        with contextlib.suppress(RemoteError):
            await third.binding(WORKER, "n")
            return True
        return False

    await eventually(is_let_in)
    third.close()


async def test_a_proxy_cannot_speak_for_anothers_worker(harness: Harness) -> None:
    await harness.attested()
    stranger = await harness.fleet.pair()
    with pytest.raises(PalyraError) as refused:
        await harness.fleet.ask_violation(WORKER, str(stranger.device_id))
    assert refused.value.code == "worker.foreign_egress"
    assert harness.fleet.ledger.worker(WORKER).state is State.AVAILABLE
