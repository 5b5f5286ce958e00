"""kill -9 of the daemon or of the device, anywhere in pairing and dispatch: both go on from what is on disk."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.daemon import PALYRA, Daemon, Place
from fakes.eventually import eventually_sync
from fakes.node_process import (
    DAEMON_SETTINGS,
    DEVICE_SETTINGS,
    NodeProcess,
    approve,
    code_arguments,
    make_code,
    node_process,
    node_state,
    pending,
)

# Appends a line for each time it is run, then waits for the test.
PRESS = """
[node.commands.press]
argv = ["sh", "-c", "echo pressed >> pressed; while [ ! -e go-on ]; do sleep 0.05; done"]
interpreter = true
ask = false
"""


class Lives:
    """Every process of a test: what it does not end itself is ended with it."""

    def __init__(self) -> None:
        self._daemons: list[Daemon] = []
        self._nodes: list[NodeProcess] = []
        self._calls: list[subprocess.Popen[str]] = []

    def daemon(self, home: Place) -> Daemon:
        self._daemons.append(Daemon(home))
        return self._daemons[-1]

    def node(self, away: Place, *words: str) -> NodeProcess:
        self._nodes.append(NodeProcess(away, *words))
        return self._nodes[-1]

    def paired(self, home: Place, away: Place) -> NodeProcess:
        node = self.node(away, *code_arguments(make_code(home)))
        approve(home, node.comparison_code)
        node.says("connected")
        return node

    def press(self, home: Place) -> "subprocess.Popen[str]":
        """A call that is under way."""
        call = subprocess.Popen(
            [*PALYRA, "call", "node.invoke", "--input", '{"capability": "command.press"}', "--json"],
            env=home.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._calls.append(call)
        return call

    def end(self) -> None:
        for node in self._nodes:
            node.stop()
        for call in self._calls:
            call.kill()
            call.communicate()
        for daemon in self._daemons:
            if daemon.process.poll() is None:
                daemon.kill()


@pytest.fixture
def lives() -> Iterator[Lives]:
    lives = Lives()
    try:
        yield lives
    finally:
        lives.end()


@pytest.fixture
def home(tmp_path: Path) -> Place:
    return Place(tmp_path / "home", DAEMON_SETTINGS)


@pytest.fixture
def away(tmp_path: Path) -> Place:
    return Place(tmp_path / "away", DEVICE_SETTINGS + PRESS)


def workspace(away: Place) -> Path:
    return away.state / "node" / "workspace"


def pressed(away: Place) -> int:
    marks = workspace(away) / "pressed"
    return len(marks.read_text().splitlines()) if marks.exists() else 0


def answer(call: "subprocess.Popen[str]") -> dict[str, Any]:
    out, _ = call.communicate(timeout=60)
    document: dict[str, Any] = json.loads(out)
    return document


def echo(home: Place) -> None:
    done = home.palyra("call", "node.invoke", "--input", '{"capability":"echo","input":{"text":"hi"}}', "--json")
    assert done.status == 0, done.stdout


@pytest.mark.promise("P-device-recovers")
def test_a_device_killed_at_any_moment_of_pairing_goes_on_with_the_same_request(
    home: Place, away: Place, lives: Lives
) -> None:
    with home.daemon():
        words = code_arguments(make_code(home))
        for moment in (0.15, 0.3, 0.4, 0.5, 0.6):
            node = lives.node(away, *words)
            try:
                node.process.wait(moment)
            except subprocess.TimeoutExpired:
                node.kill()
            else:
                pytest.fail(f"it ended by itself: {node.said}")
        with node_process(away, *words) as node:
            shown = node.comparison_code
            (request,) = pending(home)
            assert request["comparison_code"] == shown
            node.kill()
        # Approved while the device is dead; it needs no code to go on.
        approve(home, shown)
        with node_process(away) as node:
            node.says("connected")
            echo(home)
        with node_process(away) as node:
            node.says("connected")


@pytest.mark.promise("P-device-recovers")
def test_a_daemon_killed_while_a_device_waits_still_knows_it_and_answers_it(
    home: Place, away: Place, lives: Lives
) -> None:
    daemon = lives.daemon(home)
    words = code_arguments(make_code(home))
    with node_process(away, *words) as node:
        shown = node.comparison_code
        daemon.kill()
        daemon = lives.daemon(home)
        approve(home, shown)
        # And again between the decision and the certificate, or just after it.
        daemon.kill()
        daemon = lives.daemon(home)
        node.says("connected")
        # It may have been connected to the daemon that was killed.
        eventually_sync(lambda: node_state(home) == "online", seconds=60)
        echo(home)
        daemon.kill()
        with home.daemon():
            eventually_sync(lambda: node_state(home) == "online", seconds=60)
            echo(home)
            assert home.palyra("journal", "verify").status == 0


@pytest.mark.promise("P-device-once")
def test_a_device_killed_while_it_works_does_not_do_it_twice_and_says_what_happened(
    home: Place, away: Place, lives: Lives
) -> None:
    with home.daemon():
        node = lives.paired(home, away)
        call = lives.press(home)
        eventually_sync(lambda: pressed(away) == 1, seconds=60)
        node.kill()
        (workspace(away) / "go-on").touch()
        with node_process(away) as again:
            again.says("connected")
            failed = answer(call)
            assert failed["error"]["code"] == "nodes.device_failed", failed
            assert "nodes.host_interrupted" in str(failed["error"])
            echo(home)
        assert pressed(away) == 1


@pytest.mark.promise("P-device-recovers")
def test_a_daemon_killed_while_a_device_works_ends_the_call_on_record_and_both_go_on(
    home: Place, away: Place, lives: Lives
) -> None:
    daemon = lives.daemon(home)
    node = lives.paired(home, away)
    call = lives.press(home)
    eventually_sync(lambda: pressed(away) == 1, seconds=60)
    daemon.kill()
    assert answer(call)["ok"] is False
    with home.daemon():
        eventually_sync(lambda: node_state(home) == "online", seconds=60)
        # Nobody waits for it any more: it is stopped or its result is refused, and it is not done again.
        (workspace(away) / "go-on").touch()
        echo(home)
        assert node.stop() == 0
        with node_process(away) as again:
            again.says("connected")
            echo(home)
        assert pressed(away) == 1
        open_states = {"queued", "dispatched", "awaiting_local_mediation"}
        (device,) = home.palyra("node", "list", "--json").data["nodes"]
        shown = home.palyra("node", "show", device["device_id"], "--json").data
        assert not open_states & {request["state"] for request in shown["requests"]}
        assert home.palyra("journal", "verify").status == 0


@pytest.mark.parametrize("damage", ["truncated", "gone"])
def test_a_damaged_state_file_falls_back_to_the_last_good_copy_and_says_so(
    home: Place, away: Place, lives: Lives, damage: str
) -> None:
    daemon = lives.daemon(home)
    node = lives.paired(home, away)
    daemon.kill()
    path = home.state / "node-runtime.v1.json"
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(whole[: len(whole) // 2])
    with home.daemon():
        eventually_sync(lambda: node_state(home) == "online", seconds=60)
        echo(home)
        events = home.palyra("journal", "tail", "--json", "-n", "1000").data["events"]
        assert [
            event["kind"] for event in events if event["kind"].startswith("nodes.state") or "recover" in event["kind"]
        ]
    node.stop()


def test_a_damaged_device_file_falls_back_to_the_last_good_copy_and_says_so(
    home: Place, away: Place, lives: Lives
) -> None:
    with home.daemon():
        lives.paired(home, away).kill()
        path = away.state / "node" / "node-device.v1.json"
        path.write_bytes(path.read_bytes()[:100])
        with node_process(away) as node:
            node.says("the last good copy is used")
            node.says("connected")
