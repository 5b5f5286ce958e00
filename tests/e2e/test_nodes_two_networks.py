"""A daemon in one network and a device in another: paired, used, cut off, and back without help."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.daemon import Place
from fakes.eventually import eventually_sync
from fakes.node_process import (
    DAEMON_SETTINGS,
    DEVICE_SETTINGS,
    approve,
    code_arguments,
    make_code,
    node_process,
    node_state,
    pending,
)
from fakes.two_networks import NEAR_ADDRESS, TwoNetworks, two_networks

ON_THE_WIRE = DAEMON_SETTINGS.replace("[nodes]", f'[nodes]\nhost = "{NEAR_ADDRESS}"\nadvertise = ["{NEAR_ADDRESS}"]')


@pytest.fixture
def networks() -> Iterator[TwoNetworks]:
    with two_networks() as networks:
        yield networks


@pytest.fixture
def home(networks: TwoNetworks, tmp_path: Path) -> Place:
    place = Place(tmp_path / "home", ON_THE_WIRE)
    place.through = networks.near.through
    return place


@pytest.fixture
def away(networks: TwoNetworks, tmp_path: Path) -> Place:
    place = Place(tmp_path / "away", DEVICE_SETTINGS)
    place.through = networks.far.through
    return place


def invoke(home: Place, capability: str, given: str = "{}") -> dict[str, Any]:
    document = f'{{"capability": "{capability}", "input": {given}}}'
    answered: dict[str, Any] = home.palyra("call", "node.invoke", "--input", document, "--json").data
    return answered


@pytest.mark.promise("P-device-recovers")
@pytest.mark.parametrize("method", ["pin", "qr"])
def test_a_device_is_paired_used_cut_off_and_returns(
    home: Place, away: Place, networks: TwoNetworks, method: str
) -> None:
    with home.daemon():
        made = make_code(home, method)
        with node_process(away, *code_arguments(made), "--name", "bench") as node:
            request = approve(home, node.comparison_code)
            assert request["name"] == "bench" and request["address"] == "192.0.2.2"
            node.says("connected")
            assert invoke(home, "echo", '{"text": "over the wire"}')["result"]["output"] == {"text": "over the wire"}
            networks.cut()
            eventually_sync(lambda: node_state(home) == "offline", seconds=60)
            node.says("the connection is lost")
            networks.mend()
            eventually_sync(lambda: node_state(home) == "online", seconds=60)
            health = invoke(home, "system.health")["result"]["output"]
            assert health["cpus"] >= 1
            shown = away.palyra("node", "status", "--json").data
            assert shown["state"] == "online" and shown["running"] and shown["device_id"] == request["device_id"]
        assert away.palyra("node", "status", "--json").data["state"] == "stopped"
        eventually_sync(lambda: node_state(home) == "offline", seconds=60)
        # Started again it needs no code; and when it leaves, the daemon knows.
        with node_process(away) as node:
            node.says("connected")
            assert away.palyra("node", "leave", "--json").data == {"left": True, "told_daemon": True}
            assert node.wait() == 3, node.said
        assert node_state(home) == "revoked"
        assert away.palyra("node", "status", "--json").data == {"paired": False, "running": False}
        kinds = [event["kind"] for event in journal(home)]
        for kind in (
            "pairing.approved",
            "pairing.completed",
            "node.connected",
            "node.disconnected",
            "node.request_ended",
        ):
            assert kind in kinds
        assert made["code"] not in home.palyra("journal", "export").stdout


def test_a_rejected_device_is_told_and_keeps_nothing(home: Place, away: Place) -> None:
    with home.daemon():
        with node_process(away, *code_arguments(make_code(home))) as node:
            node.says("Waiting for the decision")
            (request,) = pending(home)
            assert home.palyra("pair", "reject", request["id"], "--reason", "not ours").status == 0
            assert node.wait() == 3 and "rejected" in node.said
        assert away.palyra("node", "status", "--json").data["paired"] is False
        # No second try with the same code, and nothing to go on with.
        assert away.palyra("node", "run", "--json").error["code"] == "nodes.not_paired"


def test_a_call_to_a_device_that_is_cut_off_waits_for_its_return(
    home: Place, away: Place, networks: TwoNetworks
) -> None:
    with home.daemon(), node_process(away, *code_arguments(make_code(home))) as node:
        approve(home, node.comparison_code)
        node.says("connected")
        device = node_of(home)["device_id"]
        networks.cut()
        eventually_sync(lambda: node_state(home) == "offline", seconds=60)
        short = home.palyra("node", "invoke", device, "echo", "--input", '{"text":"x"}', "--timeout", "1", "--json")
        assert short.error["code"] == "nodes.offline"
        networks.mend()
        long = home.palyra("node", "invoke", device, "echo", "--input", '{"text":"x"}', "--timeout", "50", "--json")
        assert long.status == 0, long.stdout


def node_of(home: Place) -> dict[str, Any]:
    (node,) = home.palyra("node", "list", "--json").data["nodes"]
    found: dict[str, Any] = node
    return found


def journal(home: Place) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = home.palyra("journal", "tail", "--json", "-n", "1000").data["events"]
    return events
