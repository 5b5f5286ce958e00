"""NodeService over real gRPC with real certificates: the checks in their order, on every call and on every message."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from fakes.eventually import eventually
from fakes.identity_harness import ACTOR, DeviceKey
from fakes.node_server_harness import ECHO, PATIENCE, PRINT, ByHand, NodeServerHarness, code_of, node_of, open_harness
from palyra.identity.device import DeviceId, DeviceKind, DeviceState
from palyra.nodes.domain.records import DeviceCapabilityView
from palyra.wire.node.v1 import node_pb2 as wire
from palyra.wire.node.v1.node_pb2_grpc import NodeServiceStub

UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[NodeServerHarness]:
    async with asyncio.timeout(4 * PATIENCE), open_harness(tmp_path) as opened:
        yield opened


@pytest.fixture
async def device(harness: NodeServerHarness) -> AsyncIterator[ByHand]:
    paired = await harness.pair()
    yield paired
    await paired.close()


def calls_of(device: ByHand, device_id: str) -> list[Any]:
    """Every unary call of the service, in the name of a device."""
    stub = device.stub
    return [
        stub.RegisterNode(wire.RegisterNodeRequest(device_id=device_id, protocol_version=1), timeout=PATIENCE),
        stub.ReportCapabilityResult(
            wire.ReportCapabilityResultRequest(device_id=device_id, request_id="x", output_json=b"1"), timeout=PATIENCE
        ),
        stub.RenewCertificate(
            wire.RenewCertificateRequest(device_id=device_id, csr_der=device.key.csr(), generation=1), timeout=PATIENCE
        ),
        stub.RevokeDevicePairing(wire.RevokeDevicePairingRequest(device_id=device_id), timeout=PATIENCE),
        stub.ExecuteCapability(wire.ExecuteCapabilityRequest(device_id=device_id, capability="echo"), timeout=PATIENCE),
    ]


async def refusal_of(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value


async def test_without_a_certificate_or_with_anothers_authority_the_handshake_fails(
    harness: NodeServerHarness, device: ByHand, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    async with open_harness(tmp_path / "other") as elsewhere:
        stranger = await elsewhere.pair()
        device.connect(key=stranger.key, chain=stranger.issued.certificate_pem)
        assert (await refusal_of(device.register())).code() is grpc.StatusCode.UNAVAILABLE
        await stranger.close()
    bare = grpc.aio.secure_channel(
        f"127.0.0.1:{harness.port}",
        grpc.ssl_channel_credentials(root_certificates=harness.identities.ca_bundle_pem()),
        options=(("grpc.ssl_target_name_override", "palyra"),),
    )
    request = wire.RegisterNodeRequest(device_id=device.device_id)
    error = await refusal_of(NodeServiceStub(bare).RegisterNode(request, timeout=PATIENCE))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    await bare.close()
    assert harness.executed == [] and harness.events("node.registered") == []


async def test_a_device_speaks_for_itself_only_on_every_call(harness: NodeServerHarness, device: ByHand) -> None:
    other = await harness.pair("another")
    device.connect()
    for claimed in (str(other.device_id), "", "01ARZ3NDEKTSV4RRFFQ69G5FAV"):
        for call in calls_of(device, claimed):
            error = await refusal_of(call)
            assert (error.code(), error.details()) == (DENIED, "permission_denied") and code_of(error) == ""
    assert set(harness.refused) == {"nodes.other_device"} and harness.executed == []
    recorded = harness.events("node.peer_refused")
    # One entry for each method, however often it was tried.
    assert len(recorded) == 5 and {one["device_id"] for one in recorded} == {device.device_id}
    assert harness.identities.device(other.device_id).state is DeviceState.ACTIVE


@pytest.mark.promise("P-device-known")
async def test_the_first_check_that_fails_is_the_refusal(harness: NodeServerHarness, device: ByHand) -> None:
    """A revoked device that also is not paired and names another is refused as revoked: nothing after that is looked
    at."""
    device.connect()
    await device.register()
    await harness.state.transact(lambda unit: unit.nodes.delete(device.device_id))
    await eventually(lambda: not harness.paired.is_paired(device.device_id))
    for call in calls_of(device, "somebody else"):
        assert (await refusal_of(call)).code() is DENIED
    assert set(harness.refused) == {"nodes.unpaired_device"}
    harness.refused.clear()
    await harness.identities.revoke(device.device_id, reason="", actor=ACTOR)
    for call in calls_of(device, "somebody else"):
        error = await refusal_of(call)
        assert (error.code(), error.details()) == (UNAUTHENTICATED, "unauthenticated")
    assert set(harness.refused) == {"identity.revoked"}


async def test_a_workers_certificate_is_not_for_nodes(harness: NodeServerHarness) -> None:
    worker = await harness.pair("a worker", DeviceKind.WORKER)
    worker.connect()
    for call in calls_of(worker, worker.device_id):
        assert (await refusal_of(call)).code() is DENIED
    assert await worker.stream().ended() is DENIED
    assert set(harness.refused) == {"nodes.wrong_kind"}
    await worker.close()


async def test_a_certificate_that_no_table_has_is_unknown(tmp_path: Path) -> None:
    """It is of our authority and passes the handshake."""
    async with asyncio.timeout(3 * PATIENCE):
        async with open_harness(tmp_path) as harness:
            device = await harness.pair()
            await harness.store.transact(lambda tx: tx.execute("DELETE FROM identity_certificates"))
        async with open_harness(tmp_path) as harness:
            device.harness = harness
            device.connect()
            assert (await refusal_of(device.register())).code() is UNAUTHENTICATED
            assert set(harness.refused) == {"identity.unknown_certificate"}
            await device.close()


@pytest.mark.promise("P-device-known")
async def test_each_message_of_a_stream_is_judged(harness: NodeServerHarness, device: ByHand) -> None:
    other = await harness.pair("another")
    stream = await device.online()
    await stream.beat()
    await stream.say(device_id=other.device_id, heartbeat=wire.Heartbeat())
    assert await stream.ended() is DENIED
    assert harness.refused == ["nodes.other_device"]
    await eventually(lambda: harness.events("node.disconnected"))
    assert harness.events("node.disconnected")[0]["code"] == "nodes.other_device" and len(harness.registry) == 0


@pytest.mark.promise("P-device-known")
async def test_a_revoked_devices_stream_is_cut_though_it_says_nothing(
    harness: NodeServerHarness, device: ByHand
) -> None:
    other = await harness.pair("another")
    stream, spared = await device.online(), await other.online()
    asked = harness.invoke(device, PRINT)
    request = await stream.receive("dispatch")
    await harness.paired.revoke("a laptop", reason="lost", actor=ACTOR)
    assert await stream.ended() is DENIED
    with pytest.raises(Exception) as failed:
        await asked
    assert failed.value.code == "nodes.device_gone"  # type: ignore[attr-defined]
    # What it says afterwards, also over a connection that was open before, counts for nothing.
    assert (await refusal_of(device.report(request.request_id))).code() is UNAUTHENTICATED
    assert (await refusal_of(device.register())).code() is UNAUTHENTICATED
    assert await device.stream().ended() is UNAUTHENTICATED
    await spared.beat()
    assert harness.events("node.revoked")[0]["reason"] == "lost"
    assert harness.paired.view(node_of(harness, device))["state"] == "revoked"
    await other.close()


@pytest.mark.promise("P-device-known")
async def test_revoked_by_another_process_the_stream_is_cut_too(
    harness: NodeServerHarness, device: ByHand, tmp_path: Path
) -> None:
    stream = await device.online()
    elsewhere = NodeServerHarness(tmp_path, harness.clock)
    await elsewhere.identities.revoke(device.device_id, reason="", actor=ACTOR)
    with pytest.raises((AssertionError, grpc.aio.AioRpcError)):
        async with asyncio.timeout(PATIENCE):
            while True:
                await stream.beat()
                await asyncio.sleep(0.05)
    assert await stream.ended() in (UNAUTHENTICATED, DENIED)
    elsewhere.store.close()


async def test_a_stream_comes_after_a_registration(harness: NodeServerHarness, device: ByHand) -> None:
    device.connect()
    stream = device.stream()
    assert await stream.ended() is grpc.StatusCode.INVALID_ARGUMENT
    assert "nodes.not_registered" in await stream.call.details()
    assert len(harness.registry) == 0


async def test_registration_tells_what_holds_and_writes_once(harness: NodeServerHarness, device: ByHand) -> None:
    device.connect()
    answer = await device.register(ECHO, PRINT, open_ids=("01ARZ3NDEKTSV4RRFFQ69G5FAV",))
    assert answer.protocol_version == 1 and answer.heartbeat_interval_ms == 1000
    assert list(answer.abandoned_request_ids) == ["01ARZ3NDEKTSV4RRFFQ69G5FAV"] and answer.max_result_bytes == 4096
    assert answer.ca_bundle_pem == harness.identities.ca_bundle_pem()
    await device.register(ECHO, PRINT)
    assert len(harness.events("node.registered")) == 1
    await device.register(ECHO)
    assert [one["capabilities"] for one in harness.events("node.registered")] == [["echo", "print"], ["echo"]]


@pytest.mark.promise("P-device-consent")
async def test_withheld_stays_withheld_whatever_the_device_reports(harness: NodeServerHarness, device: ByHand) -> None:
    device.connect()
    await device.register(ECHO, PRINT)
    await harness.paired.set_withheld("a laptop", "print", withheld=True, actor=ACTOR)
    for inventory in ((ECHO, PRINT), (ECHO,), (PRINT,)):
        answer = await device.register(*inventory)
        assert list(answer.withheld_capabilities) == ["print"]
    assert [(one.name, one.withheld) for one in node_of(harness, device).capabilities] == [("print", True)]
    await harness.paired.set_withheld("a laptop", "print", withheld=False, actor=ACTOR)
    assert not node_of(harness, device).capabilities[0].withheld


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"protocol_version": 2}, "nodes.unknown_protocol"),
        ({"open_ids": ("x",) * 1000}, "nodes.too_much_told"),
    ],
)
async def test_a_registration_that_makes_no_sense_is_refused(
    harness: NodeServerHarness, device: ByHand, fields: dict[str, Any], code: str
) -> None:
    device.connect()
    error = await refusal_of(device.register(**fields))
    assert code_of(error) == code


@pytest.mark.parametrize(
    "inventory",
    [
        [DeviceCapabilityView(name="Bad Name")],
        [ECHO, ECHO],
        [DeviceCapabilityView(name="a", input_schema_json="{")],
        [DeviceCapabilityView(name="a", input_schema_json='{"$ref":"file:///etc/passwd"}')],
        [DeviceCapabilityView(name=f"c{number}") for number in range(1000)],
    ],
)
async def test_an_inventory_that_makes_no_sense_changes_nothing(
    harness: NodeServerHarness, device: ByHand, inventory: list[DeviceCapabilityView]
) -> None:
    device.connect()
    error = await refusal_of(device.register(*inventory))
    assert code_of(error) in ("nodes.bad_inventory", "nodes.too_much_told")
    assert node_of(harness, device).capabilities == ()


async def test_capabilities_may_change_while_connected(harness: NodeServerHarness, device: ByHand) -> None:
    stream = await device.online()
    changed = wire.CapabilitiesChanged(capabilities=[wire.Capability(name="light.on", description="a\x1b[31mlamp")])
    await stream.say(capabilities_changed=changed)
    await stream.beat()
    (only,) = node_of(harness, device).capabilities
    assert (only.name, only.description) == ("light.on", "a [31mlamp")
    await stream.say(capabilities_changed=wire.CapabilitiesChanged(capabilities=[wire.Capability(name="UP")]))
    assert await stream.ended() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture
def patient_goodbyes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine it takes a while until a device has heard the last word."""
    monkeypatch.setattr("palyra.nodes.server.stream.GOODBYE_SECONDS", PATIENCE)


@pytest.mark.promise("P-device-recovers")
@pytest.mark.usefixtures("patient_goodbyes")
async def test_a_newer_certificate_takes_over_without_the_device_being_gone(
    harness: NodeServerHarness, device: ByHand
) -> None:
    first, old = device.issued, await device.online()
    waiting = harness.invoke(device, PRINT)
    request = await old.receive("dispatch")
    device.adopt(await device.renew())
    device.connect()
    await device.register(open_ids=(request.request_id,))
    # Until the new stream stands the old certificate is good.
    await old.beat()
    new = device.stream()
    await new.beat()
    goodbye = await old.receive("goodbye")
    assert goodbye.code == "nodes.replaced" and await old.ended() is grpc.StatusCode.OK
    assert harness.events("node.disconnected") == []
    assert [one["generation"] for one in harness.events("node.connected")] == [1, 2]
    await device.report(request.request_id)
    assert await waiting == b'"done"'
    # The old certificate is over now.
    device.issued = first
    device.connect()
    assert (await refusal_of(device.register())).code() is UNAUTHENTICATED
    assert harness.refused[-1] == "identity.superseded"


@pytest.mark.usefixtures("patient_goodbyes")
async def test_of_two_streams_with_one_certificate_the_newer_wins(harness: NodeServerHarness, device: ByHand) -> None:
    first = await device.online()
    second = await device.online()
    assert (await first.receive("goodbye")).code == "nodes.replaced"
    asked = harness.invoke(device)
    await device.report((await second.receive("dispatch")).request_id)
    await asked
    assert harness.events("node.disconnected") == [] and len(harness.registry) == 1


async def test_a_stale_generation_locks_the_device_and_cuts_its_streams(
    harness: NodeServerHarness, device: ByHand
) -> None:
    first = device.issued
    stream = await device.online()
    device.adopt(await device.renew())
    stream = await device.online()
    # Somebody with a copy of the first certificate asks for the next one with another key.
    thief = ByHand(harness, device.key, first)
    thief.connect()
    error = await refusal_of(thief.renew(csr=DeviceKey().csr()))
    assert (error.code(), error.details()) == (UNAUTHENTICATED, "unauthenticated")
    assert await stream.ended() is DENIED
    assert harness.identities.device(device.device_id).state is DeviceState.LOCKED
    assert "identity.stale_generation" in harness.refused
    await thief.close()


async def test_a_renewal_gives_a_certificate_of_the_next_generation(harness: NodeServerHarness, device: ByHand) -> None:
    device.connect()
    answer = await device.renew()
    assert answer.generation == 2 and answer.ca_bundle_pem == harness.identities.ca_bundle_pem()
    # A lost answer is given again.
    assert (await device.renew()).certificate_pem == answer.certificate_pem
    error = await refusal_of(device.renew(csr=b"not a request"))
    assert code_of(error).startswith("identity.csr_")


async def test_a_device_that_leaves_is_revoked(harness: NodeServerHarness, device: ByHand) -> None:
    stream = await device.online()
    await device.stub.RevokeDevicePairing(
        wire.RevokeDevicePairingRequest(device_id=device.device_id, reason="sold"), timeout=PATIENCE
    )
    assert await stream.ended() is DENIED
    assert node_of(harness, device).revoked_reason == "sold"
    assert harness.identities.device(device.device_id).state is DeviceState.REVOKED
    assert (await refusal_of(device.register())).code() is UNAUTHENTICATED


async def test_a_device_asks_for_a_capability_through_the_pipeline(harness: NodeServerHarness, device: ByHand) -> None:
    device.connect()
    request = wire.ExecuteCapabilityRequest(
        device_id=device.device_id, target_device_id="t", capability="echo", input_json=b"{}", timeout_ms=5
    )
    answer = await device.stub.ExecuteCapability(request, timeout=PATIENCE)
    assert (answer.call_id, answer.output_json) == ("01CALL", b'{"ok":true}')
    assert harness.executed == [(device.device_id, "t", "echo", b"{}", 5)]
    request.capability = "forbidden"
    error = await refusal_of(device.stub.ExecuteCapability(request, timeout=PATIENCE))
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION and code_of(error) == "test.unwelcome"


@pytest.mark.promise("P-device-recovers")
async def test_a_device_that_falls_silent_is_offline_and_comes_back(tmp_path: Path) -> None:
    async with asyncio.timeout(3 * PATIENCE), open_harness(tmp_path, heartbeat_timeout=0.5) as harness:
        device = await harness.pair()
        stream = await device.online()
        assert (await stream.receive("goodbye")).code == "nodes.silent"
        await eventually(lambda: harness.events("node.disconnected"))
        assert harness.events("node.disconnected")[0]["code"] == "nodes.silent" and not harness.registry.online()
        again = await device.online()
        await again.beat()
        assert harness.registry.online() == (device.device_id,)
        await device.close()


async def test_a_device_that_says_it_goes_is_gone_at_once(harness: NodeServerHarness, device: ByHand) -> None:
    stream = await device.online()
    await stream.say(leaving=wire.Leaving(reason="shutting down"))
    assert await stream.ended() is grpc.StatusCode.OK
    await eventually(lambda: harness.events("node.disconnected"))
    assert harness.events("node.disconnected")[0]["code"] == "nodes.left" and len(harness.registry) == 0


async def test_devices_hear_of_a_new_authority(harness: NodeServerHarness, device: ByHand) -> None:
    stream = await device.online()
    await harness.identities.rotate_authority(actor=ACTOR)
    harness.dispatcher.announce(harness.identities.ca_bundle_pem())
    news = await stream.receive("certificate_news")
    assert news.renew_now and news.ca_bundle_pem == harness.identities.ca_bundle_pem()
    # The listener shows the new authority's certificate at the next handshake, and takes both kinds of device.
    device.adopt(await device.renew())
    await (await device.online()).beat()


async def test_many_devices_are_told_apart(harness: NodeServerHarness) -> None:
    devices = [await harness.pair(f"device {number}") for number in range(4)]
    streams = [await device.online() for device in devices]
    asked = [harness.invoke(device, input_json=b"%d" % number) for number, device in enumerate(devices)]
    for number, (device, stream) in enumerate(zip(devices, streams, strict=True)):
        dispatch = await stream.receive("dispatch")
        assert dispatch.input_json == b"%d" % number
        await device.report(dispatch.request_id, b"%d" % number)
    assert [await one for one in asked] == [b"0", b"1", b"2", b"3"]
    for device in devices:
        await device.close()


@pytest.mark.promise("P-limits")
async def test_messages_beyond_the_transports_limit_do_not_reach_the_service(
    harness: NodeServerHarness, device: ByHand
) -> None:
    device.connect()
    error = await refusal_of(device.report("x", b'"' + b"x" * (3 * 1024 * 1024) + b'"'))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert DeviceId(device.device_id) and harness.refused == []
