from typing import Any

from fakes.identity_harness import ACTOR, DeviceKey, IdentityHarness
from palyra.identity.device import DeviceId, DeviceKind, DeviceState
from palyra.identity.identity_manager import KnownDevices


async def test_it_knows_what_is_stored_and_follows_what_changes(harness: IdentityHarness) -> None:
    manager = harness.manager()
    known = KnownDevices(harness.store())
    assert known.refresh() == [] and known.revision == 0
    device_id = DeviceId.new()
    issued = await manager.issue(DeviceKind.WORKER, device_id, DeviceKey().csr(), actor=ACTOR)
    assert known.find(issued.fingerprint) is None
    assert known.refresh() == []
    found = known.find(issued.fingerprint)
    assert found is not None and found.peer.kind is DeviceKind.WORKER and found.device.used_generation == 0
    await manager.used(found.peer)
    known.refresh()
    assert known.device(device_id).used_generation == 1  # type: ignore[union-attr]


async def test_an_end_is_told_once_and_only_of_devices_that_were_let_in(harness: IdentityHarness) -> None:
    manager = harness.manager()
    known = KnownDevices(harness.store())
    first, second = DeviceId.new(), DeviceId.new()
    for device_id in (first, second):
        await manager.issue(DeviceKind.NODE, device_id, DeviceKey().csr(), actor=ACTOR)
    await manager.revoke(second, reason="lost", actor=ACTOR)
    assert known.refresh() == [], "nobody could have been let in by this"
    await manager.revoke(first, reason="lost", actor=ACTOR)
    ended = known.refresh()
    assert [(row.device_id, row.state) for row in ended] == [(first, DeviceState.REVOKED)]
    assert known.refresh() == []


class Hurried:
    """The certificates are read a moment after the devices: by then ``late`` has changed as well."""

    def __init__(self, harness: IdentityHarness) -> None:
        self._store = harness.store()
        self.late = ""

    def read(self, sql: str, params: Any = ()) -> list[tuple[Any, ...]]:
        rows = self._store.read(sql, params)
        if self.late and "FROM identity_certificates WHERE" in sql:
            columns = sql.partition(" WHERE ")[0]
            rows += self._store.read(f"{columns} WHERE device_id = ?", (self.late,))
        return rows


async def test_a_device_that_changes_between_two_reads_is_known_once(harness: IdentityHarness) -> None:
    manager, reader = harness.manager(), Hurried(harness)
    known = KnownDevices(reader)
    issued = [await manager.issue(DeviceKind.WORKER, DeviceId.new(), DeviceKey().csr(), actor=ACTOR) for _ in range(2)]
    known.refresh()
    first, second = (known.find(one.fingerprint) for one in issued)
    assert first is not None and second is not None
    reader.late = str(second.peer.device_id)
    await manager.used(first.peer)
    known.refresh()
    reader.late = ""
    await manager.used(second.peer)
    known.refresh()
    found = known.find(issued[1].fingerprint)
    assert found is not None and found.device.used_generation == 1


async def test_certificates_that_are_gone_are_forgotten(harness: IdentityHarness) -> None:
    manager = harness.manager(certificate_seconds=60)
    known = KnownDevices(harness.store())
    device_id, prints = DeviceId.new(), []
    issued = await manager.issue(DeviceKind.NODE, device_id, DeviceKey().csr(), actor=ACTOR)
    prints.append(issued.fingerprint)
    for generation in (1, 2, 3):
        harness.clock.forward(40)
        peer = manager.identify(issued.fingerprint)
        await manager.used(peer)
        issued = await manager.renew(peer, DeviceKey().csr(), generation)
        prints.append(issued.fingerprint)
        known.refresh()
    assert known.find(prints[0]) is None, "it ended, and two came after it"
    assert known.find(prints[-1]) is not None and known.find(prints[-2]) is not None
