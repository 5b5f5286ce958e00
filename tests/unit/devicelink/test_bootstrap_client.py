"""A device's side of pairing, against the real listener over real TLS."""

import asyncio
from types import SimpleNamespace

import httpcore2
import msgspec
import pytest

from fakes.pairing_harness import NODE_PORT, OPERATOR, Device, PairingHarness
from palyra.devicelink.agent.joining import DaemonNotReached, NoAddress, ProvedPairing, WrongKind, _Connection, prove
from palyra.devicelink.pairing import messages as wire
from palyra.devicelink.pairing.code import ServerAddress
from palyra.devicelink.pairing.proof import MalformedProof, WrongServer
from palyra.errors import RemoteError
from palyra.identity.device import DeviceKind


@pytest.fixture
async def harness(tmp_path):
    async with PairingHarness(tmp_path).running() as harness:
        yield harness


@pytest.mark.parametrize("method", ["pin", "qr"])
async def test_a_device_proves_a_code_waits_and_gets_its_certificate(harness, method):
    _, code = await harness.code(method)
    device = Device(harness.address)
    proved = await device.prove(code)
    (waiting,) = await harness.pairing.pairings()
    assert (waiting.comparison_code, waiting.facts.name) == (proved.comparison_code, "a laptop")
    assert (await device.ask(proved)).state == "pending_approval"

    waiting_device = asyncio.create_task(device.ask(proved, wait_ms=30_000))
    await harness.pairing.approve(proved.pairing_id, actor=OPERATOR, comparison_code=proved.comparison_code)
    answer = await waiting_device
    assert (answer.state, answer.generation, answer.node_port) == ("completed", 1, NODE_PORT)
    peer = harness.identity.identify(_fingerprint(answer.certificate_pem))
    assert (str(peer.device_id), peer.kind) == (proved.device_id, DeviceKind.NODE)
    assert answer.ca_bundle_pem == harness.identity.ca_bundle_pem()


async def test_a_qr_code_says_where_the_daemon_is(harness):
    _, code = await harness.code("qr")
    device = Device(harness.address)
    proved = await prove(code, kind=DeviceKind.NODE, csr_der=device.key.csr(), facts=device.facts)
    assert ServerAddress.parse(proved.server) == harness.address


async def test_a_pin_does_not(harness):
    _, code = await harness.code()
    with pytest.raises(NoAddress):
        await Device(harness.address).prove(code, servers=[])


async def test_a_code_for_another_kind_is_refused_on_both_sides(harness):
    _, code = await harness.code("qr", "worker")
    with pytest.raises(WrongKind):
        await Device(harness.address).prove(code)
    with pytest.raises(RemoteError) as refused:
        await Device(harness.address).prove(msgspec.structs.replace(code, kind=None))
    assert refused.value.remote_code == "pairing.unknown_code"


async def test_a_rejection_reaches_the_device_with_its_reason(harness):
    _, code = await harness.code()
    device = Device(harness.address)
    proved = await device.prove(code)
    await harness.pairing.reject(proved.pairing_id, actor=OPERATOR, reason="not mine")
    answer = await device.ask(proved)
    assert (answer.state, answer.reason, answer.certificate_pem) == ("rejected", "not mine", b"")


async def test_what_a_device_keeps_survives_being_written_down(harness):
    _, code = await harness.code()
    proved = await Device(harness.address).prove(code)
    note = msgspec.to_builtins(proved)
    assert all(isinstance(value, str) for value in note.values())
    assert msgspec.convert(note, ProvedPairing) == proved
    assert "redacted" in repr(proved)


async def test_the_next_address_is_tried_where_nobody_answers(harness):
    _, code = await harness.code()
    dead = await _dead_address()
    proved = await Device(harness.address).prove(code, servers=[dead, harness.address])
    assert ServerAddress.parse(proved.server) == harness.address
    with pytest.raises(DaemonNotReached):
        await Device(harness.address).prove(code, servers=[dead])


async def test_another_daemon_at_the_same_address_is_not_asked_for_the_answer(harness, tmp_path):
    _, code = await harness.code()
    device = Device(harness.address)
    proved = await device.prove(code)
    async with PairingHarness(tmp_path / "other").running() as other:
        with pytest.raises(WrongServer):
            await device.ask(msgspec.structs.replace(proved, server=str(other.address)))


async def test_a_wrong_authority_in_the_code_ends_it_before_anything_is_proved(harness):
    _, code = await harness.code("qr")
    with pytest.raises(WrongServer):
        await Device(harness.address).prove(msgspec.structs.replace(code, ca_hash="0" * 64))
    assert harness.events("pairing.guess_failed") == []


class Answers:
    """A pool of connections: each answer comes from the server with the next certificate."""

    def __init__(self, *certificates):
        self._certificates = list(certificates)

    async def handle_async_request(self, _request):
        return httpcore2.Response(400, content=Body(), extensions={"network_stream": Stream(self._certificates.pop(0))})


class Body:
    async def __aiter__(self):
        yield b"{}"


class Stream:
    def __init__(self, certificate):
        self._certificate = certificate

    def get_extra_info(self, _name):
        return SimpleNamespace(getpeercert=lambda binary_form: self._certificate)


async def test_every_response_has_to_come_under_the_same_certificate():
    connection = _Connection(ServerAddress("127.0.0.1", 1), Answers(b"one", b"one", b"two"))
    begin = wire.Begin(version=wire.VERSION, nameplate="1", kind=DeviceKind.NODE)
    for _ in range(2):
        with pytest.raises(MalformedProof):
            await connection.call(wire.BEGIN, begin, wire.Hello, 5)
    assert connection.leaf_der == b"one"
    with pytest.raises(WrongServer):
        await connection.call(wire.BEGIN, begin, wire.Hello, 5)


async def _dead_address():
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return ServerAddress("127.0.0.1", port)


def _fingerprint(pem):
    from palyra.identity.certificate import fingerprint_of

    return fingerprint_of(pem)
