"""The listener over real TLS: certificates that change, connections that end."""

import asyncio
import contextlib
import ssl

import pytest

from fakes.eventually import eventually
from fakes.pairing_harness import Device, PairingHarness
from palyra.devicelink.pairing.proof import hash_certificate


@pytest.fixture
async def harness(tmp_path):
    async with PairingHarness(tmp_path).running() as harness:
        yield harness


async def leaf_of(harness):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(harness.address.host, harness.address.port, ssl=context)
    leaf = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return hash_certificate(leaf)


async def test_what_it_says_it_serves_is_what_a_device_sees(harness):
    served = harness.served.served()
    assert await leaf_of(harness) in served.leaf_hashes
    assert hash_certificate(served.ca_der) == served.ca_hash == harness.identity.ca_hash()


async def test_a_new_certificate_is_served_at_once_and_the_one_before_is_remembered(harness):
    before = await leaf_of(harness)
    harness.identity.name_server(("another.example",))
    after = await leaf_of(harness)
    assert before != after
    assert set(harness.served.served().leaf_hashes) == {before, after}


async def test_a_device_pairs_across_a_change_of_certificate_and_of_authority(harness):
    _, code = await harness.code("pin")
    begin = harness.service.begin

    async def renewing(message, address):
        hello = await begin(message, address)
        harness.identity.name_server(("renewed.example",))
        return hello

    harness.service.begin = renewing
    assert await Device(harness.address).prove(code)
    await harness.identity.rotate_authority(actor="user:o")
    harness.service.begin = begin
    _, code = await harness.code("qr")
    assert code.ca_hash == harness.identity.ca_hash()
    device = Device(harness.address)
    proved = await device.prove(code)
    # A device that pinned the old authority still gets its answer, as the new one is vouched for by it.
    await harness.pairing.approve(proved.pairing_id, actor="user:o")
    assert (await device.ask(proved)).state == "completed"


async def test_stopping_cuts_every_connection(tmp_path):
    harness = PairingHarness(tmp_path / "one")
    async with harness.running():
        _, code = await harness.code("pin")
        device = Device(harness.address)
        proved = await device.prove(code)
        waiting = asyncio.create_task(device.ask(proved, wait_ms=60_000))
        await eventually(lambda: harness.listener.connections)
    with pytest.raises(Exception) as ended:
        await asyncio.wait_for(waiting, 60)
    assert not isinstance(ended.value, TimeoutError)


async def test_a_connection_that_is_no_tls_is_dropped_and_its_place_given_back(harness):
    reader, writer = await asyncio.open_connection(harness.address.host, harness.address.port)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    with contextlib.suppress(OSError):
        await asyncio.wait_for(reader.read(), 60)
    writer.transport.abort()
    await eventually(lambda: not harness.listener.connections)
