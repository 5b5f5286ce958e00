"""Devices of a whole gateway in the test's own process: paired behind its back, then real clients of its listener."""

from typing import Any

from fakes.eventually import eventually
from fakes.gateway_harness import GatewayHarness
from fakes.identity_harness import ACTOR, DeviceKey
from fakes.node_server_harness import ByHand
from fakes.node_state_harness import node_record
from palyra.devicelink.pairing.code import PairingMethod
from palyra.identity.device import DeviceId, DeviceKind


class GatewayDevices:
    """What a device made by hand needs to know of the daemon."""

    def __init__(self, harness: GatewayHarness) -> None:
        self.harness = harness
        self.identities = harness.gateway.identity

    @property
    def port(self) -> int:
        return int(self.harness.gateway.status()["nodes"]["port"] or 0)

    async def listening(self) -> None:
        """Until devices can connect: a code is what asks for it."""
        pairing = (await self.harness.gateway.nodes.opened()).pairing
        await pairing.make_code(PairingMethod.PIN, DeviceKind.NODE, actor=ACTOR)
        await eventually(lambda: self.port)

    async def pair(self, name: str = "laptop") -> ByHand:
        await self.listening()
        opened = await self.harness.gateway.nodes.opened()
        key, device_id = DeviceKey(), DeviceId.new()
        issued = await self.identities.issue(DeviceKind.NODE, device_id, key.csr(), actor=ACTOR)
        await opened.state.transact(lambda unit: unit.nodes.put(node_record(id=device_id, name=name)))
        return ByHand(self, key, issued)  # type: ignore[arg-type]


async def answer_all(device: ByHand, stream: Any, output: bytes = b'{"said":"hi"}') -> None:
    """Until cancelled."""
    while True:
        await device.report((await stream.receive("dispatch")).request_id, output)
