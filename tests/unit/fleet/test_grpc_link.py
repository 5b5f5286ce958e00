"""The worker's connection: batches, artifacts in pieces, and what each refusal means."""

import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from fakes.worker_agent_harness import WorkerAgentHarness, worker_agent_harness
from palyra.devicelink.agent.identity import HeldIdentity
from palyra.fleet.agent.link import LinkLost, LossKind, WorkerLink
from palyra.fleet.domain.workspace_scope import ArtifactRef
from palyra.wire.worker.v1 import worker_pb2 as wire


def link_of(harness: WorkerAgentHarness, address: str = "") -> WorkerLink:
    identity = HeldIdentity(harness.pairing, harness.record())
    return WorkerLink(address or f"127.0.0.1:{harness.fleet.port}", identity.credentials(), identity.device_id)


async def test_artifacts_travel_whole_both_ways(tmp_path: Path) -> None:
    async with worker_agent_harness(tmp_path) as harness:
        link = link_of(harness)
        data = os.urandom(700_000)
        ref = ArtifactRef(path="a", digest_sha256=hashlib.sha256(data).hexdigest(), size=len(data))
        assert await link.find_missing("L", 1, [ref.digest_sha256]) == {ref.digest_sha256}
        (tmp_path / "file").write_bytes(data)
        descriptor = os.open(tmp_path / "file", os.O_RDONLY)
        await link.upload("L", 1, ref, descriptor)
        os.close(descriptor)
        assert harness.fleet.artifacts[ref.digest_sha256] == data
        assert await link.find_missing("L", 1, [ref.digest_sha256]) == set()
        parts: list[bytes] = []
        await link.download("L", 1, ref, parts.append)
        assert b"".join(parts) == data
        await link.close()


async def test_what_gathered_goes_in_one_message_and_the_stream_ends_when_we_say_so(tmp_path: Path) -> None:
    async with worker_agent_harness(tmp_path) as harness:
        link, received = link_of(harness), list[wire.DaemonCommand]()
        link.send(hello=wire.Hello(protocol_version=1, boot_id="b", slots=1))
        for _ in range(5):
            link.send(heartbeat=wire.Heartbeat())
        link.finish_sending()
        with pytest.raises(LinkLost) as lost:
            await asyncio.wait_for(link.stream(received.append), 30)
        assert lost.value.kind is LossKind.UNREACHABLE and len(harness.fleet.beats) == 5
        assert harness.fleet.hellos[0].boot_id == "b" and not lost.value.final
        await link.close()
        assert not received or received[0].HasField("welcome")


async def test_nobody_there_a_refusal_and_what_is_not_implemented_are_told_apart(tmp_path: Path) -> None:
    async with worker_agent_harness(tmp_path) as harness:
        nobody = link_of(harness, "127.0.0.1:1")
        with pytest.raises(LinkLost) as lost:
            await nobody.leave("x")
        assert lost.value.kind is LossKind.UNREACHABLE and not lost.value.final
        await nobody.close()
        link = link_of(harness)
        await link.leave("done")
        assert harness.fleet.left == [harness.worker_id]
        await harness.fleet.harness.identities.revoke(harness.worker_id, reason="x", actor="user:operator")
        with pytest.raises(LinkLost) as lost:
            await link.renew(b"", 1)
        assert lost.value.kind is LossKind.REFUSED
        await link.close()
