"""The class *Identity* against a running daemon, over real TLS: who is not the device they say gets nothing."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from msgspec.structs import replace

from fakes.besieged import DAY_MS, FACTS, Besieged, Forger, besieged_place, guesser, status_of
from fakes.eventually import eventually_sync
from fakes.identity_harness import DeviceKey
from fakes.node_server_harness import ByHand, code_of
from palyra.devicelink.agent.joining import prove
from palyra.errors import PalyraError, RemoteError
from palyra.identity.certificate import Purpose
from palyra.identity.device import DeviceKind
from palyra.secret import Secret

pytestmark = pytest.mark.promise("P-device-known")

UNAUTHENTICATED = (grpc.StatusCode.UNAUTHENTICATED, "unauthenticated")
DENIED = (grpc.StatusCode.PERMISSION_DENIED, "permission_denied")


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    place = besieged_place(tmp_path_factory.mktemp("besieged"))
    forger = Forger(place)
    with place.daemon() as daemon:
        yield Besieged(place, daemon, forger)


@pytest.fixture
async def devices() -> AsyncIterator[list[ByHand]]:
    """What connections the test makes; closed with it."""
    used: list[ByHand] = []
    yield used
    for device in used:
        await device.close()


@pytest.fixture
async def device(besieged: Besieged, devices: list[ByHand]) -> ByHand:
    devices.append(await besieged.pair())
    return devices[-1]


async def test_certificates_that_are_not_the_authoritys_word_end_in_the_handshake(
    besieged: Besieged, device: ByHand
) -> None:
    """Nothing of the daemon's is reached: there is no status but that of a broken line, and nothing to record."""
    forger, key, name = besieged.forger, device.key, device.device_id
    now = time.time_ns() // 1_000_000
    forged = {
        "another authority": forger.leaf(key, name, signer=forger.other_authority()),
        "expired": forger.leaf(key, name, not_before_ms=now - 2 * DAY_MS, not_after_ms=now - 1_000),
        "not valid yet": forger.leaf(key, name, not_before_ms=now + DAY_MS // 2),
        "for servers": forger.leaf(key, name, purpose=Purpose.SERVER),
    }
    before = len(besieged.refused())
    for what, chain in forged.items():
        device.connect(chain=chain)
        code, _ = await status_of(device.register())
        assert code is grpc.StatusCode.UNAVAILABLE, what
    # No certificate at all.
    credentials = grpc.ssl_channel_credentials(root_certificates=forger.bundle)
    options = (("grpc.ssl_target_name_override", "palyra"), ("grpc.enable_retries", 0))
    async with grpc.aio.secure_channel(f"127.0.0.1:{besieged.port}", credentials, options=options) as channel:
        method = channel.unary_unary("/palyra.node.v1.NodeService/RegisterNode")
        assert (await status_of(method(b"", timeout=30)))[0] is grpc.StatusCode.UNAVAILABLE
    # No TLS at all.
    async with grpc.aio.insecure_channel(f"127.0.0.1:{besieged.port}") as channel:
        method = channel.unary_unary("/palyra.node.v1.NodeService/RegisterNode")
        assert (await status_of(method(b"", timeout=30)))[0] is grpc.StatusCode.UNAVAILABLE
    assert len(besieged.refused()) == before
    device.connect()
    assert (await status_of(device.register()))[0] is grpc.StatusCode.OK, "the honest one still gets in"


async def test_a_certificate_that_was_signed_but_never_issued_is_unknown(besieged: Besieged, device: ByHand) -> None:
    """Somebody who once had the authority's key for a moment: what is not on record does not count."""
    device.connect(chain=besieged.forger.leaf(device.key, device.device_id))
    assert await status_of(device.register()) == UNAUTHENTICATED
    assert besieged.is_refused("identity.unknown_certificate")


async def test_a_device_speaks_for_itself_only(besieged: Besieged, device: ByHand, devices: list[ByHand]) -> None:
    other = await besieged.pair(name="another")
    devices.append(other)
    stream = await device.online()
    victim = await other.online()
    assert await status_of(device.register(device_id=other.device_id)) == DENIED
    assert await status_of(device.report("01ARZ3NDEKTSV4RRFFQ69G5FAV", device_id=other.device_id)) == DENIED
    assert await status_of(device.renew(device_id=other.device_id)) == DENIED
    from palyra.wire.node.v1 import node_pb2 as wire

    leave = wire.RevokeDevicePairingRequest(device_id=other.device_id)
    assert await status_of(device.stub.RevokeDevicePairing(leave, timeout=30)) == DENIED
    execute = wire.ExecuteCapabilityRequest(device_id=other.device_id, capability="echo")
    assert await status_of(device.stub.ExecuteCapability(execute, timeout=30)) == DENIED
    await stream.say(device_id=other.device_id, heartbeat=wire.Heartbeat())
    assert await stream.ended() is grpc.StatusCode.PERMISSION_DENIED
    await victim.beat()
    methods = {one["method"] for one in besieged.refused() if one["code"] == "nodes.other_device"}
    assert methods == {
        *("RegisterNode", "ReportCapabilityResult", "RenewCertificate", "RevokeDevicePairing"),
        *("ExecuteCapability", "StreamNodeEvents"),
    }


async def test_a_worker_is_no_node(besieged: Besieged, devices: list[ByHand]) -> None:
    worker = await besieged.pair(DeviceKind.WORKER, "a worker")
    devices.append(worker)
    worker.connect()
    assert await status_of(worker.register()) == DENIED
    assert besieged.is_refused("nodes.wrong_kind")


async def test_a_revoked_device_is_cut_in_the_middle_and_never_comes_back(besieged: Besieged, device: ByHand) -> None:
    stream = await device.online()
    async with besieged.client() as client:
        await client.revoke_node(device.device_id, reason="stolen")
    assert await stream.ended() is grpc.StatusCode.PERMISSION_DENIED
    # On the same connection, and on a new one.
    assert await status_of(device.register()) == UNAUTHENTICATED
    device.connect()
    assert await status_of(device.register()) == UNAUTHENTICATED
    assert await status_of(device.renew()) == UNAUTHENTICATED
    assert besieged.is_refused("identity.revoked")


async def test_a_stale_generation_shows_a_copied_key_and_locks_the_device(besieged: Besieged, device: ByHand) -> None:
    stream = await device.online()
    thief = ByHand(device.harness, device.key, device.issued)
    thief.connect()
    renewed = await device.renew()
    # A reply that was lost: the same key gets the same answer.
    assert (await device.renew()).certificate_pem == renewed.certificate_pem
    device.adopt(renewed)
    newer = await device.online()
    await newer.beat()
    # The certificate of before has done its duty.
    assert await status_of(thief.register()) == UNAUTHENTICATED
    assert besieged.is_refused("identity.superseded")
    assert await stream.ended() in (grpc.StatusCode.OK, grpc.StatusCode.PERMISSION_DENIED)
    # Whoever still renews from it has a copy: nobody can tell which of the two is the device.
    thief.key = DeviceKey()
    assert (await status_of(thief.renew(1)))[0] in (UNAUTHENTICATED[0], DENIED[0])
    assert await newer.ended() is grpc.StatusCode.PERMISSION_DENIED
    assert await status_of(device.register()) == UNAUTHENTICATED
    assert besieged.is_refused("identity.locked")
    await thief.close()


@pytest.mark.parametrize(
    ("extension", "code"),
    [
        (x509.SubjectAlternativeName([x509.DNSName("palyra")]), "identity.csr_asks_for_names"),
        (
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier("spiffe://x/node/01ARZ3NDEKTSV4RRFFQ69G5FAV")]),
            "identity.csr_asks_for_names",
        ),
        (x509.BasicConstraints(ca=True, path_length=None), "identity.csr_asks_for_authority"),
        (x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), "identity.csr_asks_for_more"),
    ],
)
async def test_a_request_for_more_than_a_key_is_refused_when_pairing_and_when_renewing(
    besieged: Besieged, shared: ByHand, extension: Any, code: str
) -> None:
    key = DeviceKey()
    pairing_code, server = await besieged.code()
    with pytest.raises(PalyraError) as caught:
        await besieged._patiently(
            lambda: prove(pairing_code, kind=DeviceKind.NODE, csr_der=key.csr(extension), facts=FACTS, servers=[server])
        )
    assert caught.value.as_dict()["code"] == code
    assert (await status_of(shared.renew(csr=key.csr(extension))))[0] in (UNAUTHENTICATED[0], DENIED[0])
    assert besieged.is_refused(code, "RenewCertificate")
    # A question that was wrong is no reason to lock anybody out.
    assert (await status_of(shared.register()))[0] is grpc.StatusCode.OK


@pytest.fixture
async def shared(besieged: Besieged, device: ByHand) -> ByHand:
    device.connect()
    await device.register()
    return device


@pytest.mark.promise("P-device-once")
async def test_every_result_that_does_not_count_has_its_own_refusal(
    besieged: Besieged, device: ByHand, devices: list[ByHand]
) -> None:
    other = await besieged.pair(name="another")
    devices.append(other)
    stream = await device.online()
    await other.online()

    async def refused(call: Any) -> str:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        return code_of(caught.value)

    async def asked(timeout_ms: int = 30_000) -> tuple[str, "asyncio.Task[Any]"]:
        arguments = {"device": str.__str__(device.device_id), "capability": "print", "timeout_ms": timeout_ms}
        call = asyncio.create_task(called(besieged, arguments))
        dispatched = await stream.receive("dispatch")
        return dispatched.request_id, call

    assert await refused(device.report("01ARZ3NDEKTSV4RRFFQ69G5FAV")) == "nodes.result_unknown"

    request_id, call = await asked()
    assert await refused(other.report(request_id)) == "nodes.result_wrong_device"
    await device.report(request_id, b'"printed"')
    assert (await call)["result"]["output"] == "printed"
    assert await refused(device.report(request_id, b'"again"')) == "nodes.result_duplicate"

    request_id, call = await asked()
    assert await refused(device.report(request_id, b'"' + b"x" * 5_000 + b'"')) == "nodes.result_too_large"
    assert (await call)["error"]["code"] in ("nodes.result_too_large", "nodes.device_failed")

    request_id, call = await asked(timeout_ms=300)
    assert (await call)["error"]["code"] == "nodes.timed_out"
    assert await refused(device.report(request_id)) == "nodes.result_late"
    reported = {one["code"] for one in besieged.refused()}
    names = ("unknown", "wrong_device", "duplicate", "too_large", "late")
    assert {f"nodes.result_{name}" for name in names} <= reported


async def test_a_device_gets_no_further_through_the_daemon_than_policy_lets_it(
    besieged: Besieged, device: ByHand, devices: list[ByHand]
) -> None:
    """One device asks for another's capability, and for its own: nobody said that devices are agents here, though the
    tool needs no approval."""
    from palyra.wire.node.v1 import node_pb2 as wire

    other = await besieged.pair(name="the only one named so")
    devices.append(other)
    await device.online()
    victim = await other.online()
    for target in (other.device_id, "the only one named so", device.device_id, ""):
        ask = wire.ExecuteCapabilityRequest(
            device_id=device.device_id, target_device_id=target, capability="print", input_json=b"{}", timeout_ms=5_000
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await device.stub.ExecuteCapability(ask, timeout=30)
        assert code_of(caught.value) == "call.denied"
    await victim.beat()
    asked = besieged.place.palyra("journal", "tail", "--json", "-n", "1000").data["events"]
    assert any(one["principal"] == f"agent:node/{device.device_id}" for one in asked), "and it is on record as its own"
    assert not any(
        one["kind"] == "node.request_queued" and one["principal"] == f"agent:node/{device.device_id}" for one in asked
    )


async def called(besieged: Besieged, arguments: dict[str, Any]) -> dict[str, Any]:
    """How a call of `node.invoke` ended, as the API tells it."""
    async with besieged.client() as client:
        try:
            view = await client.call("node.invoke", arguments)
        except PalyraError as error:
            return {"error": error.as_dict()}
        return view.document


async def test_a_used_code_is_used_and_of_two_claimants_one_gets_in(besieged: Besieged) -> None:
    code, server = await besieged.code()
    keys = [DeviceKey(), DeviceKey()]

    async def claim(key: DeviceKey) -> Any:
        return await besieged._patiently(
            lambda: prove(code, kind=DeviceKind.NODE, csr_der=key.csr(), facts=FACTS, servers=[server])
        )

    claims = await asyncio.gather(*(claim(key) for key in keys), return_exceptions=True)
    refused = [one for one in claims if isinstance(one, RemoteError)]
    (proved,) = [one for one in claims if not isinstance(one, BaseException)]
    assert [one.remote_code for one in refused] == ["pairing.code_used"]
    async with besieged.client() as client:
        (request,) = [one for one in await client.pairings() if one.id == proved.pairing_id]
        assert request.refused_claims == 1, "and the person sees that there was another"
        await client.reject_pairing(request.id)
    with pytest.raises(RemoteError) as caught:
        await claim(DeviceKey())
    assert caught.value.remote_code in ("pairing.code_used", "pairing.unknown_code")


def test_ten_thousand_guesses_get_five_tries(tmp_path: Path) -> None:
    """On a daemon of its own: the address of the guesses is shut out."""

    async def guess(besieged: Besieged) -> dict[str, int]:
        code, server = await besieged.code()
        right, csr = int(code.secret.reveal()), DeviceKey().csr()
        ended: dict[str, int] = {}
        # Each on a connection that is kept: a handshake for each guess would only be slower.
        async with guesser(server, csr) as try_one:
            for number in range(10_001):
                if number != right:
                    what = await try_one(replace(code, secret=Secret(f"{number:08d}")))
                    ended[what] = ended.get(what, 0) + 1
        return ended

    place = besieged_place(tmp_path / "guessed")
    forger = Forger(place)
    with place.daemon() as daemon:
        besieged = Besieged(place, daemon, forger)
        ended = asyncio.run(guess(besieged))
        assert sum(ended.values()) >= 10_000, ended
        assert ended.get("got in", 0) == 0 and ended["pairing.wrong_code"] == 5, ended
        assert place.palyra("pair", "list", "--json").data["pairings"] == []
        eventually_sync(
            lambda: place.palyra("journal", "tail", "--json", "--kind", "pairing.code_burned").data["events"]
        )
