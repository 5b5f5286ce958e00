"""A worker's proxy and its listeners: for leases that the daemon granted, within grant and policy, until their end."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes.eventually import eventually
from fakes.loopback import greeting
from fakes.node_server_harness import MovedClock
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.proxy.resolver import SystemResolver
from palyra.errors import PalyraError
from palyra.fleet import limits
from palyra.fleet.domain.attestation import EgressBinding
from palyra.fleet.domain.signed_statement import SignedStatement, open_statement
from palyra.fleet.egress.leases import (
    BeyondPolicy,
    LeaseGrant,
    LeaseNotGranted,
    LeaseOver,
    LeaseRef,
    ListenerExists,
    NoListener,
    Orders,
    OtherWorker,
)
from palyra.fleet.egress.policy import WorkerEgressPolicy
from palyra.fleet.egress.proxy import WorkerEgress
from palyra.fleet.egress.violations import ViolationReports, ViolationSpool
from palyra.signing.p256 import P256Signer

REF = LeaseRef(f"{7:026d}", 3)


class Pin:
    worker_id = "w1"

    def __call__(self, worker_id: str) -> bool:
        return worker_id == self.worker_id


class Harness:
    def __init__(self, folder: Path, port: int) -> None:
        self.host = f"here.test:{port}"
        self.clock = MovedClock()
        self.signer = P256Signer.generate()
        self.spool = ViolationSpool(folder, self.clock.now_ms)
        self.resolver = SystemResolver({"here.test": ("127.0.0.1",)})
        policy = WorkerEgressPolicy.of(
            {"allowed_hosts": [self.host], "private_targets": [self.host], "max_lease_bytes": 1_000}
        )
        self.egress = WorkerEgress(
            policy,
            egress_id="e1",
            signer=self.signer,
            pin=Pin(),
            reports=ViolationReports(self.spool, self.clock),
            service=EgressProxyPolicyService(frozenset),
            resolver=self.resolver,
            clock=self.clock,
        )

    def grant(self, ref: LeaseRef = REF, **changes: Any) -> None:
        fields: dict[str, Any] = {"hosts": (self.host,), "max_bytes": 500, "timeout_ms": 60_000, **changes}
        grant = LeaseGrant(worker_id="w1", lease_id=ref.lease_id, fence=ref.fence, **fields)
        self.egress.apply(Orders(granted=(grant,)))

    async def open(self, ref: LeaseRef = REF) -> tuple[str, int]:
        listening = socket.create_server(("127.0.0.1", 0))
        at: tuple[str, int] = listening.getsockname()
        await self.egress.open(ref, [("proxy", listening)])
        return at

    async def connect(self, at: tuple[str, int], host: str) -> bytes:
        """The proxy's first line, and what the server says through the tunnel."""
        reader, writer = await asyncio.open_connection(*at)
        writer.write(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        try:
            return (await asyncio.wait_for(reader.read(300), 20)).split(b"\r\n")[0]
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def reported(self) -> list[tuple[str, str]]:
        return [(each.violation.code, each.violation.host) for each in self.spool.waiting()]


@asynccontextmanager
async def made(folder: Path) -> AsyncIterator[Harness]:
    async with greeting(b"ready\n") as port:
        harness = Harness(folder, port)
        try:
            yield harness
        finally:
            await harness.egress.close_all()
            harness.egress.proxy.close()
            harness.resolver.close()
            harness.spool.close()


@pytest.mark.promise("P-worker-network")
async def test_a_binding_is_signed_for_its_own_worker_only(tmp_path: Path) -> None:
    async with made(tmp_path) as harness:
        bound = await harness.egress.bind("w1", "the nonce")
        signed = SignedStatement(bytes.fromhex(bound.payload), bytes.fromhex(bound.signature))
        said = open_statement(EgressBinding, signed, harness.signer.verifier())
        assert (said.egress_id, said.worker_id, said.nonce) == ("e1", "w1", "the nonce")
        assert said.policy_digest_sha256 == harness.egress.policy.digest()
        assert said.expires_ms - said.issued_ms == limits.BINDING_LIFE_MS
        with pytest.raises(OtherWorker):
            await harness.egress.bind("w2", "the nonce")


async def test_a_door_lets_through_what_was_granted_and_nothing_else(tmp_path: Path) -> None:
    async with made(tmp_path) as harness:
        harness.grant()
        granted = await harness.egress.granted(REF)
        assert (granted.hosts, granted.max_bytes) == ((harness.host,), 500)
        at = await harness.open()
        assert b"200" in await harness.connect(at, harness.host)
        assert harness.reported() == []
        assert b"403" in await harness.connect(at, "evil.test:443")
        assert harness.reported() == [("egress.host_not_allowed", "evil.test")]
        usage = await harness.egress.close(REF)
        assert (usage.connections, usage.refused, usage.violations) == (1, 1, 1)
        assert usage.refusals[0]["code"] == "egress.host_not_allowed"
        # What the first door moved is gone from the lease.
        assert (await harness.egress.granted(REF)).max_bytes == 500 - usage.bytes_up - usage.bytes_down


async def test_a_lease_waits_a_while_for_the_daemons_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with made(tmp_path) as harness:
        waiting = asyncio.create_task(harness.egress.granted(REF))
        await asyncio.sleep(0)
        harness.egress.apply(Orders())
        assert not waiting.done()
        harness.grant()
        assert (await waiting).hosts == (harness.host,)
        monkeypatch.setattr(limits, "GRANT_WAIT_SECONDS", 0.01)
        with pytest.raises(LeaseNotGranted):
            await harness.egress.granted(LeaseRef(f"{8:026d}", 1))


async def test_the_narrower_of_grant_and_policy_holds(tmp_path: Path) -> None:
    async with made(tmp_path) as harness:
        harness.grant(max_bytes=1 << 40)
        assert (await harness.egress.granted(REF)).max_bytes == 1_000
        wide = LeaseRef(f"{8:026d}", 4)
        harness.grant(wide, hosts=(harness.host, "other.test"))
        with pytest.raises(BeyondPolicy):
            await harness.egress.granted(wide)
        with pytest.raises(BeyondPolicy):
            await harness.open(wide)


async def test_one_door_of_a_lease_and_none_that_was_not_opened(tmp_path: Path) -> None:
    async with made(tmp_path) as harness:
        harness.grant()
        with pytest.raises(NoListener):
            await harness.egress.close(REF)
        await harness.open()
        with pytest.raises(ListenerExists):
            await harness.open()
        await harness.egress.close(REF)
        at = await harness.open()
        # The worker's process is gone.
        await harness.egress.close_all()
        with pytest.raises(OSError):
            await harness.connect(at, harness.host)


@pytest.mark.promise("P-worker-network")
@pytest.mark.parametrize("how", ["ended", "whole", "deadline"])
async def test_after_its_end_a_lease_reaches_nothing_and_later_that_is_a_violation(tmp_path: Path, how: str) -> None:
    async with made(tmp_path) as harness:
        harness.grant()
        at = await harness.open()
        assert b"200" in await harness.connect(at, harness.host)
        match how:
            case "ended":
                harness.egress.apply(Orders(ended=(REF,)))
            case "whole":
                harness.egress.apply(Orders(whole=True))
            case "deadline":
                harness.clock.ahead_ms += 60_000
                sweeping = asyncio.create_task(harness.egress.sweep())
                await eventually(lambda: harness.egress.registry.find(REF.lease_id).is_over)
                sweeping.cancel()
        assert b"403" in await harness.connect(at, harness.host)
        with pytest.raises(LeaseOver):
            await harness.egress.granted(REF)
        # A program that runs, and a worker that is about to begin, cannot know yet.
        assert harness.reported() == []
        harness.clock.ahead_ms += limits.ENDED_GRACE_MS
        assert b"403" in await harness.connect(at, harness.host)
        assert harness.reported() == [("egress.lease_outlived", "here.test")]
        with pytest.raises(LeaseOver):
            await harness.egress.granted(REF)
        assert harness.reported() == [("egress.lease_outlived", "here.test"), ("egress.lease_outlived", "")]


async def test_an_open_tunnel_is_cut_when_its_lease_ends(tmp_path: Path) -> None:
    async with made(tmp_path) as harness:
        harness.grant()
        at = await harness.open()
        reader, writer = await asyncio.open_connection(*at)
        writer.write(f"CONNECT {harness.host} HTTP/1.1\r\nHost: {harness.host}\r\n\r\n".encode())
        await asyncio.wait_for(reader.readuntil(b"ready\n"), 20)
        harness.egress.apply(Orders(ended=(REF,)))
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
        assert harness.reported() == []


async def test_sockets_of_a_refused_door_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GRANT_WAIT_SECONDS", 0.01)
    async with made(tmp_path) as harness:
        listening = socket.create_server(("127.0.0.1", 0))
        with pytest.raises(PalyraError):
            await harness.egress.open(REF, [("proxy", listening)])
        assert listening.fileno() == -1
