"""Files of leases over real gRPC: only for an open lease, only for its worker, only what its digest says."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from fakes.fleet_server_harness import PATIENCE, SCOPE, FleetServerHarness, HandWorker, open_harness
from fakes.node_server_harness import code_of
from palyra.fleet.domain.workspace_scope import ArtifactRef, WorkerWorkspaceScope
from palyra.fleet.limits import CHUNK_BYTES
from palyra.wire.worker.v1 import worker_pb2 as wire

CONTENT = b"a" * (CHUNK_BYTES + 10)
DIGEST = hashlib.sha256(CONTENT).hexdigest()
INPUT = ArtifactRef(path="in.txt", digest_sha256=DIGEST, size=len(CONTENT))
OUTPUT = hashlib.sha256(b"made").hexdigest()


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[FleetServerHarness]:
    async with asyncio.timeout(4 * PATIENCE), open_harness(tmp_path) as opened:
        opened.parts.artifacts.store.add(iter((CONTENT,)), len(CONTENT), DIGEST)
        yield opened


@pytest.fixture
async def worker(harness: FleetServerHarness) -> AsyncIterator[HandWorker]:
    made = await harness.worker()
    await made.online()
    yield made
    await made.close()


async def refused(awaitable: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await awaitable
    return code_of(error.value)


async def download(worker: HandWorker, offer: Any, digest: str = DIGEST, **changes: Any) -> bytes:
    fields = {"lease_id": offer.lease_id, "fence": offer.fence, "offset": 0, **changes}
    request = wire.DownloadArtifactRequest(device_id=worker.worker_id, digest_sha256=digest, **fields)
    parts = b""
    async for chunk in worker.rpc.DownloadArtifact(request, timeout=PATIENCE):
        assert chunk.offset == len(parts) + fields["offset"]
        parts += chunk.data
    return parts


async def upload(worker: HandWorker, offer: Any, content: bytes, *, digest: str = "", **changes: Any) -> None:
    fields = {"lease_id": offer.lease_id, "fence": offer.fence, "size": len(content), **changes}
    offset = fields.pop("offset", 0)
    head = wire.UploadHead(
        device_id=worker.worker_id, digest_sha256=digest or hashlib.sha256(content).hexdigest(), **fields
    )

    async def parts() -> AsyncIterator[Any]:
        yield wire.UploadArtifactRequest(head=head)
        yield wire.UploadArtifactRequest(chunk=wire.ArtifactChunk(offset=offset, data=content))

    await worker.rpc.UploadArtifact(parts(), timeout=PATIENCE)


async def test_files_go_out_and_come_back_by_digest(harness: FleetServerHarness, worker: HandWorker) -> None:
    call = harness.call(inputs=(INPUT,))
    offer = await worker.receive("lease")
    assert [(one.path, one.digest_sha256, one.size) for one in offer.inputs] == [("in.txt", DIGEST, len(CONTENT))]
    assert await download(worker, offer) == CONTENT
    assert await download(worker, offer, offset=CHUNK_BYTES) == CONTENT[CHUNK_BYTES:]
    ask = wire.FindMissingArtifactsRequest(
        device_id=worker.worker_id, lease_id=offer.lease_id, fence=offer.fence, digests_sha256=[DIGEST, OUTPUT]
    )
    missing = await worker.rpc.FindMissingArtifacts(ask, timeout=PATIENCE)
    assert list(missing.digests_sha256) == [OUTPUT]
    made = ArtifactRef(path="out.txt", digest_sha256=OUTPUT, size=4)
    # A result whose files are not there does not count yet.
    assert (await worker.settle(offer, artifacts=(made,))).code == "worker_artifact.unknown"
    await upload(worker, offer, b"made")
    assert (await worker.settle(offer, artifacts=(made,))).code == ""
    assert (await call).settled.statement.artifacts == (made,)
    assert harness.parts.artifacts.store.content(OUTPUT) == b"made"
    assert await refused(download(worker, offer)) == "lease.ended"
    assert await refused(upload(worker, offer, b"late")) == "lease.ended"


async def test_only_the_lease_s_own_worker_gets_its_files(harness: FleetServerHarness, worker: HandWorker) -> None:
    call = harness.call(inputs=(INPUT,))
    offer = await worker.receive("lease")
    thief = await (await harness.worker("a thief")).online()
    assert await refused(download(thief, offer)) == "lease.wrong_worker"
    assert await refused(upload(thief, offer, b"planted")) == "lease.wrong_worker"
    assert await refused(download(worker, offer, fence=offer.fence + 1)) == "lease.stale_fence"
    assert await refused(download(worker, offer, lease_id="01NONE")) == "lease.unknown"
    assert await refused(download(worker, offer, digest=OUTPUT)) == "worker_artifact.not_an_input"
    assert "lease.wrong_worker" in harness.nodes.refused
    await worker.settle(offer)
    await call
    await thief.close()


async def test_what_is_not_what_it_says_is_not_kept(harness: FleetServerHarness, worker: HandWorker) -> None:
    call = harness.call()
    offer = await worker.receive("lease")
    assert await refused(upload(worker, offer, b"made", digest=DIGEST[::-1])) == "worker_artifact.digest_mismatch"
    assert await refused(upload(worker, offer, b"made", size=3)) == "worker_artifact.digest_mismatch"
    assert await refused(upload(worker, offer, b"made", size=5)) == "worker_artifact.digest_mismatch"
    assert await refused(upload(worker, offer, b"made", offset=1)) == "worker_artifact.gap"
    assert await refused(upload(worker, offer, b"made", size=2**40)) == "worker_artifact.too_large"
    assert await refused(upload(worker, offer, b"made", digest="../../etc")) == "worker_artifact.unknown"
    assert not harness.parts.artifacts.store.has(OUTPUT)
    await worker.settle(offer)
    await call


async def test_a_lease_that_may_only_read_brings_nothing(harness: FleetServerHarness, worker: HandWorker) -> None:
    call = harness.call(scope=WorkerWorkspaceScope.parse(SCOPE.root, (".",), read_only=True))
    offer = await worker.receive("lease")
    assert await refused(upload(worker, offer, b"made")) == "worker_artifact.read_only"
    made = ArtifactRef(path="out.txt", digest_sha256=DIGEST, size=len(CONTENT))
    assert (await worker.settle(offer, artifacts=(made,))).code == "worker_scope.denied"
    await worker.settle(offer)
    await call
