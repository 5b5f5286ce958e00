import contextlib
import socket

import pytest

from fakes.eventually import eventually
from fakes.gateway_harness import open_harness
from fakes.identity_harness import DeviceKey
from fakes.pairing_harness import Device
from palyra.daemon.node_wiring import key_fingerprint
from palyra.devicelink.pairing.code import PairingMethod, parse_code
from palyra.identity.device import DeviceKind
from palyra.nodes.pairing.rules import NotListening


async def code_of(harness, method="pin"):
    service = (await harness.gateway.nodes.opened()).pairing
    made = await service.make_code(PairingMethod(method), DeviceKind.NODE, actor="user:operator")
    return service, made, parse_code(made.text.reveal())


async def test_the_first_code_opens_the_listener_and_a_device_pairs(tmp_path):
    async with open_harness(tmp_path) as harness:
        service, made, code = await code_of(harness)
        device = Device(made.addresses[0])
        proved = await device.prove(code)
        await service.approve(proved.pairing_id, actor="user:operator")
        answer = await device.ask(proved, wait_ms=30_000)
        assert answer.state == "completed" and answer.node_port
        _, again, _ = await code_of(harness, "qr")
        assert again.addresses == made.addresses


async def test_a_listener_comes_back_for_a_code_of_an_earlier_life(tmp_path):
    async with open_harness(tmp_path) as harness:
        _, made, code = await code_of(harness)
    async with open_harness(tmp_path) as harness:
        device = Device(made.addresses[0])

        async def is_proved() -> bool:
            with contextlib.suppress(Exception):
                return bool(await device.prove(code))
            return False

        await eventually(is_proved)


async def test_without_a_daemon_no_code_is_made(tmp_path):
    async with open_harness(tmp_path, {"nodes": {"enabled": False}}) as harness:
        with pytest.raises(NotListening):
            await code_of(harness)


async def test_who_asks_is_told_why_nobody_can_listen(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        async with open_harness(tmp_path, {"nodes": {"pairing_port": taken.getsockname()[1]}}) as harness:
            for _ in range(2):
                with pytest.raises(Exception) as refused:
                    await code_of(harness)
                assert getattr(refused.value, "code", "")


async def test_names_that_are_advertised_are_in_the_code(tmp_path):
    async with open_harness(tmp_path, {"nodes": {"advertise": ["box.example", "::1"]}}) as harness:
        _, made, code = await code_of(harness, "qr")
        assert [address.host for address in made.addresses] == ["box.example", "::1"]
        assert code.addresses == made.addresses


def test_a_key_has_one_fingerprint_whatever_request_it_is_in():
    key = DeviceKey()
    assert key_fingerprint(key.csr()) == key_fingerprint(key.csr(common_name="x")) != key_fingerprint(DeviceKey().csr())
