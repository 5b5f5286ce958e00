"""One link to the daemon: what its answers mean to a device, over a real listener."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.node_server_harness import ByHand, NodeServerHarness, open_harness
from palyra.devicelink.agent.identity import Credentials
from palyra.nodes.agent.link import GrpcLink, LinkLost
from palyra.nodes.agent.messages import LossKind, Offer, Outcome, Registration
from palyra.secret import Secret

ECHO = Offer(name="echo", description="", input_schema={"type": "object"}, idempotent=True)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[NodeServerHarness]:
    async with open_harness(tmp_path) as harness:
        yield harness


def link_of(harness: NodeServerHarness, device: ByHand, *, port: int = 0) -> GrpcLink:
    credentials = Credentials(
        key_pem=Secret(device.key.pem().decode()),
        certificate_pem=device.issued.certificate_pem.decode(),
        ca_bundle_pem=harness.identities.ca_bundle_pem().decode(),
    )
    return GrpcLink(f"127.0.0.1:{port or harness.port}", credentials)


def registration(device: ByHand, **changes: object) -> Registration:
    fields = {"display_name": "x", "platform": "p", "software_version": "1", "offers": (ECHO,)}
    return Registration(**{"device_id": device.device_id, **fields, **changes})  # type: ignore[arg-type]


async def test_a_registration_is_answered_with_what_the_device_must_know(harness: NodeServerHarness) -> None:
    device = await harness.pair()
    link = link_of(harness, device)
    welcome, bundle = await link.register(registration(device, open_request_ids=("01ARZ3NDEKTSV4RRFFQ69G5FAV",)))
    assert welcome.heartbeat_interval_ms == 1_000 and welcome.abandoned == ("01ARZ3NDEKTSV4RRFFQ69G5FAV",)
    assert bundle == harness.identities.ca_bundle_pem().decode()
    await link.close()


async def test_refusals_are_final_or_not_by_what_they_say(harness: NodeServerHarness) -> None:
    device = await harness.pair()
    link = link_of(harness, device)
    with pytest.raises(LinkLost) as caught:
        await link.register(registration(device, device_id="01ARZ3NDEKTSV4RRFFQ69G5FAV"))
    assert caught.value.kind is LossKind.REFUSED
    await link.register(registration(device))
    with pytest.raises(LinkLost) as caught:
        await link.report("01ARZ3NDEKTSV4RRFFQ69G5FAV", Outcome.succeeded(b"1"))
    assert caught.value.final and "nodes.result_unknown" in caught.value.why
    await link.close()
    with pytest.raises(LinkLost) as caught:
        await link_of(harness, device, port=1).register(registration(device))
    assert caught.value.kind is LossKind.UNREACHABLE and not caught.value.final


async def test_a_superseded_link_s_results_may_go_over_the_next(harness: NodeServerHarness) -> None:
    device = await harness.pair()
    link = link_of(harness, device)
    await link.register(registration(device))
    await harness.paired.revoke(device.device_id, reason="x", actor="user:operator")
    with pytest.raises(LinkLost) as caught:
        await link.report("01ARZ3NDEKTSV4RRFFQ69G5FAV", Outcome.failed("a.b", "c"))
    assert not caught.value.final and caught.value.kind is LossKind.REFUSED
    await link.close()


async def test_leaving_ends_the_pairing(harness: NodeServerHarness) -> None:
    device = await harness.pair()
    link = link_of(harness, device)
    await link.end_pairing(device.device_id, "bye")
    assert not harness.paired.is_paired(device.device_id)
    await link.close()
