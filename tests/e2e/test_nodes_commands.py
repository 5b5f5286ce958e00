"""Commands of a device's owner, run for an agent: in the sandbox of that device, with a word of the person there."""

import json
import os
import pty
import select
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.daemon import PALYRA, Place
from fakes.eventually import eventually_sync
from fakes.node_process import DAEMON_SETTINGS, NodeProcess, approve, code_arguments, make_code

COMMANDS = """
[node]
ask = []
[node.commands.say]
argv = ["printf", "%s|", "{words}"]
ask = false
[node.commands.say.parameters.words]
[node.commands.read]
argv = ["cat", "{file}"]
ask = false
[node.commands.read.parameters.file]
[node.commands.door]
argv = ["touch", "open"]
"""


class AtATerminal:
    """A node host on a terminal; the test is the person at it."""

    def __init__(self, place: Place, *arguments: str) -> None:
        self.said = ""
        self._hand, program = pty.openpty()
        self.process = subprocess.Popen(
            [*PALYRA, "node", "run", *arguments],
            env=place.environment,
            stdin=program,
            stdout=program,
            stderr=program,
            start_new_session=True,
        )
        os.close(program)
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while not self._ended.is_set():
            if select.select([self._hand], [], [], 0.1)[0]:
                try:
                    self.said += os.read(self._hand, 4096).decode("utf-8", "replace")
                except OSError:
                    return

    def says(self, words: str, times: int = 1) -> None:
        eventually_sync(lambda: self.said.count(words) >= times, seconds=60)

    def types(self, text: str) -> None:
        os.write(self._hand, text.encode())

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        self._ended.set()
        self._reader.join(30)
        os.close(self._hand)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path / "home", DAEMON_SETTINGS)
    with place.daemon():
        yield place


@pytest.fixture
def away(home: Place, tmp_path: Path) -> Place:
    """Paired, and not running."""
    place = Place(tmp_path / "away", COMMANDS)
    node = NodeProcess(place, *code_arguments(make_code(home)))
    try:
        approve(home, node.comparison_code)
        node.says("connected")
    finally:
        node.stop()
    return place


def invoke(home: Place, capability: str, **given: Any) -> dict[str, Any]:
    arguments = {"capability": capability, "input": given}
    document: dict[str, Any] = home.palyra("call", "node.invoke", "--input", json.dumps(arguments), "--json").document
    return document


@pytest.mark.promise("P-device-consent")
def test_words_stay_words_files_stay_inside_and_nobody_there_means_no(home: Place, away: Place, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the key of the house")
    node = NodeProcess(away)
    try:
        node.says("connected")
        said = invoke(home, "command.say", words="$(id) `id` ; touch gone")
        assert said["data"]["result"]["output"]["stdout"] == "$(id) `id` ; touch gone|"
        assert said["data"]["result"]["output"]["tier"] == "c"
        for path in (str(tmp_path / "secret"), "../../../secret"):
            read = invoke(home, "command.read", file=path)
            assert "house" not in json.dumps(read) and not read["ok"]
        for wrong in ({}, {"words": "-n"}, {"words": "a", "more": "b"}):
            refused = invoke(home, "command.say", **wrong)
            assert not refused["ok"]
        refused = invoke(home, "command.door")
        assert refused["error"]["code"] == "nodes.rejected", refused
        assert not (away.state / "node" / "workspace" / "open").exists()
    finally:
        node.stop()


@pytest.mark.promise("P-device-consent")
def test_the_person_at_the_device_says_yes_and_no(home: Place, away: Place) -> None:
    node = AtATerminal(away)
    answers: list[dict[str, Any]] = []
    try:
        node.says("connected")
        for number, typed in enumerate(("n\n", "y\n"), 1):
            waiting = threading.Thread(target=lambda: answers.append(invoke(home, "command.door")))
            waiting.start()
            node.says("[y/N]", number)
            node.types(typed)
            waiting.join(60)
    finally:
        node.close()
    no, yes = answers
    assert no["error"]["code"] == "nodes.rejected" and yes["ok"], answers
    assert (away.state / "node" / "workspace" / "open").exists()
