"""A node host against the daemon's own side, over a real listener with real certificates."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fakes.eventually import eventually
from fakes.node_agent_harness import FakePerson, Host, SlowCommands, online, running_host
from fakes.node_server_harness import ECHO, MovedClock, NodeServerHarness, open_harness
from palyra.devicelink import limits as device_limits
from palyra.devicelink.agent.device_folder import DeviceRecord, NotPaired
from palyra.errors import PalyraError
from palyra.nodes.agent.agent import HostDriver
from palyra.nodes.agent.messages import NoteState
from palyra.nodes.domain.records import DeviceCapabilityView

PRESS = DeviceCapabilityView(name="command.press")
POLL = DeviceCapabilityView(name="command.poll", idempotent=True)
MEDIATED = DeviceCapabilityView(name="command.door", local_mediation=True)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[NodeServerHarness]:
    async with open_harness(tmp_path) as harness:
        yield harness


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_limits, "FIRST_DELAY_MS", 50)


async def test_it_registers_what_it_offers_and_does_what_it_is_asked(
    harness: NodeServerHarness, tmp_path: Path
) -> None:
    device = await harness.pair()
    async with running_host(harness, tmp_path / "node", device) as host:
        assert await harness.invoke(device) == b'{"text":"hi"}'
        node = harness.paired.find(device.device_id)
        assert {one.name for one in node.capabilities} >= {"echo", "system.health", "command.press"}
        health = msgspec.json.decode(
            await harness.invoke(device, DeviceCapabilityView(name="system.health"), input_json=b"{}")
        )
        assert health["cpus"] >= 1
        # Settled: nothing is left open on either side.
        await eventually(lambda: all(note.state is NoteState.SETTLED for note in host.notes()))


async def test_a_person_decides_at_the_device(harness: NodeServerHarness, tmp_path: Path) -> None:
    device = await harness.pair()
    async with running_host(harness, tmp_path / "node", device, person=FakePerson(False)) as host:
        with pytest.raises(PalyraError) as caught:
            await harness.invoke(device, MEDIATED, input_json=b"{}")
        assert caught.value.code == "nodes.rejected" and host.person.asked == [("command.door", "{}")]
        assert host.commands.run_words == []
        host.person.answer = True
        host.commands.go_on.set()
        assert b'"exit_code":0' in await harness.invoke(device, MEDIATED, input_json=b"{}")


async def test_an_unanswered_question_ends_with_its_time_and_is_taken_back(
    harness: NodeServerHarness, tmp_path: Path
) -> None:
    device = await harness.pair()
    async with running_host(harness, tmp_path / "node", device) as host:
        with pytest.raises(PalyraError) as caught:
            await harness.invoke(device, MEDIATED, input_json=b"{}", timeout_ms=300)
        assert caught.value.code in ("nodes.timed_out", "nodes.device_failed")
        await eventually(lambda: host.person.taken_back == 1)
        assert host.commands.run_words == []


async def test_a_cancelled_call_stops_the_work_at_the_device(harness: NodeServerHarness, tmp_path: Path) -> None:
    device = await harness.pair()
    async with running_host(harness, tmp_path / "node", device) as host:
        call = harness.invoke(device, PRESS, input_json=b"{}")
        await asyncio.wait_for(host.commands.begun.wait(), 30)
        call.cancel()
        await eventually(lambda: host.commands.stopped == 1)


async def test_work_that_outlives_its_connection_is_settled_on_the_next(
    harness: NodeServerHarness, tmp_path: Path
) -> None:
    device = await harness.pair()
    async with running_host(harness, tmp_path / "node", device) as host:
        call = harness.invoke(device, PRESS, input_json=b"{}")
        await asyncio.wait_for(host.commands.begun.wait(), 30)
        first = harness.registry.get(device.device_id)
        harness.dispatcher._lines[device.device_id].line.end("test.cut", "cut by the test")
        host.commands.go_on.set()
        assert b'"exit_code":0' in await call
        await eventually(lambda: harness.registry.get(device.device_id) not in (None, first))
        assert len(host.commands.run_words) == 1, "and was done once"


@pytest.mark.parametrize(("capability", "times"), [(PRESS, 1), (POLL, 2)])
async def test_after_a_kill_work_with_an_effect_is_not_done_again(
    harness: NodeServerHarness, tmp_path: Path, capability: DeviceCapabilityView, times: int
) -> None:
    device = await harness.pair()
    commands = SlowCommands()
    first = Host(harness, tmp_path / "node", commands=commands)
    first.keep(device)
    first.start()
    await online(harness, device)
    call = harness.invoke(device, capability, input_json=b"{}")
    await asyncio.wait_for(commands.begun.wait(), 30)
    await first.kill()
    commands.go_on.set()
    second = Host(harness, tmp_path / "node", commands=commands)
    second.start()
    if times == 1:
        with pytest.raises(PalyraError) as caught:
            await call
        assert caught.value.code == "nodes.device_failed" and "host_interrupted" in str(caught.value.as_dict())
    else:
        assert b'"exit_code":0' in await call
    assert len(commands.run_words) == times
    await second.kill()


async def test_a_result_that_was_finished_before_the_kill_is_handed_in_by_the_next_life(
    harness: NodeServerHarness, tmp_path: Path
) -> None:
    device = await harness.pair()
    host = Host(harness, tmp_path / "node")
    host.keep(device)
    host.start()
    await online(harness, device)
    call = harness.invoke(device, PRESS, input_json=b"{}")
    await asyncio.wait_for(host.commands.begun.wait(), 30)
    # The daemon is not to be reached when the work ends.
    await harness.listener.stop(0)
    host.commands.go_on.set()
    await eventually(lambda: any(note.state is NoteState.FINISHED for note in host.notes()))
    await host.kill()
    port = await harness.listener.start(harness.services, [harness.port])
    assert port == harness.port
    again = Host(harness, tmp_path / "node")
    again.start()
    assert b'"exit_code":0' in await call and again.commands.run_words == []
    await again.kill()


@pytest.mark.promise("P-device-recovers")
async def test_certificates_renew_through_five_lifetimes_and_the_device_is_never_offline(tmp_path: Path) -> None:
    """Ten seconds of certificate pass in one: more than the skew would be needed for TLS to notice."""

    class FastClock(MovedClock):
        began = time.monotonic()

        def now_ms(self) -> int:
            return super().now_ms() + int((time.monotonic() - self.began) * 9_000)

    async with open_harness(tmp_path, clock=FastClock(), certificate_seconds=10, heartbeat_seconds=0.2) as harness:
        device = await harness.pair()
        async with running_host(harness, tmp_path / "node", device) as host:
            began = harness.clock.now_ms()
            gone = 0
            while harness.clock.now_ms() < began + 5 * 10_000:
                gone += harness.registry.get(device.device_id) is None
                assert await harness.invoke(device) == b'{"text":"hi"}'
            assert not gone and host.record.generation >= 6
            connected = harness.registry.get(device.device_id)
            assert connected is not None and connected.generation >= 6
        assert harness.events("node.disconnected") == [] or len(harness.events("node.disconnected")) == 1


async def test_a_revoked_device_is_cut_and_stops_by_itself(harness: NodeServerHarness, tmp_path: Path) -> None:
    device = await harness.pair()
    async with running_host(harness, tmp_path / "node", device) as host:
        await harness.paired.revoke(device.device_id, reason="lost", actor="user:operator")
        assert host.running is not None
        end = await asyncio.wait_for(asyncio.shield(host.running), 60)
        assert end.code == "nodes.host_refused" and host.folder.read_status()["state"] == "ended"


async def test_a_daemon_of_another_authority_is_never_spoken_to(harness: NodeServerHarness, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with open_harness(tmp_path / "other") as other:
        device = await harness.pair()
        host = Host(harness, tmp_path / "node")
        host.keep(device, port=other.port)
        host.start()
        await eventually(lambda: sum("no connection" in each for each in host.person.lines) >= 2)
        assert len(other.registry) == 0 and other.refused == []
        await host.kill()


async def test_stopping_says_goodbye(harness: NodeServerHarness, tmp_path: Path) -> None:
    device = await harness.pair()
    host = Host(harness, tmp_path / "node")
    host.keep(device)
    driver = host.start()
    await online(harness, device)
    await eventually(lambda: "connected" in host.person.lines)
    driver.stop("going home")
    assert host.running is not None
    end = await asyncio.wait_for(host.running, 30)
    assert end.code == "" and host.folder.read_status()["state"] == "stopped"
    await eventually(lambda: harness.registry.get(device.device_id) is None)
    (gone,) = harness.events("node.disconnected")
    assert gone["code"] == "nodes.left"
    host.folder.unlock()


async def test_authorities_that_change_reach_the_device_and_it_renews(
    harness: NodeServerHarness, tmp_path: Path
) -> None:
    device = await harness.pair()
    async with running_host(harness, tmp_path / "node", device) as host:
        await harness.identities.rotate_authority(actor="user:operator")
        harness.dispatcher.announce(harness.identities.ca_bundle_pem())
        await eventually(lambda: host.record.generation == 2)
        assert host.record.ca_bundle_pem == harness.identities.ca_bundle_pem().decode()
        await eventually(lambda: getattr(harness.registry.get(device.device_id), "generation", 0) == 2)
        assert await harness.invoke(device, ECHO) == b'{"text":"hi"}'


def test_without_a_pairing_there_is_no_host(harness: NodeServerHarness, tmp_path: Path) -> None:
    host = Host(harness, tmp_path / "node")
    with pytest.raises(NotPaired):
        HostDriver(
            host.folder,
            DeviceRecord(device_name="x", servers=()),
            offers={},
            performer=None,  # type: ignore[arg-type]
            person=host.person,
            platform="",
            software_version="",
            clock=harness.clock,
            draw=lambda: 0.0,
        )
