"""``palyra up``: what it prints, and what its flags change."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from fakes.daemon import PALYRA, Place
from palyra.cli.commands.up import command_of


def test_people_are_told_the_address_the_token_and_the_places(tmp_path: Path) -> None:
    place = Place(tmp_path)
    workspace = tmp_path / "work"
    workspace.mkdir()
    process = subprocess.Popen(
        [*PALYRA, "up", "--port", "0", "--no-browser", "--workspace", str(workspace)],
        env=place.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(7)]
    shown = dict(line.split(maxsplit=1) for line in lines[1:6])
    assert lines[0] == "Palyra is up.\n" and "palyra tour" in lines[6]
    assert shown["console"].startswith("http://127.0.0.1:")
    assert shown["token"].strip() == (place.state / "operator.token").read_text().strip()
    assert shown["workspace"].strip() == str(workspace)
    assert shown["policies"].strip() == str(place.policies) and shown["state"].strip() == str(place.state)
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=30)
    assert process.returncode == 0 and rest == ""


def test_whoever_has_no_palyra_on_the_path_is_told_where_it_is(tmp_path: Path) -> None:
    nowhere, somewhere = tmp_path / "nowhere", tmp_path / "bin"
    somewhere.mkdir()
    (somewhere / "palyra").touch(0o755)
    assert command_of(".venv/bin/palyra", str(nowhere)) == ".venv/bin/palyra"
    assert command_of(".venv/bin/palyra", str(somewhere)) == "palyra"
    assert command_of("/lib/palyra/cli/main.py", str(nowhere)) == "palyra"


def test_an_unusable_start_is_one_document_with_its_exit_code(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.state.mkdir(mode=0o755)
    place.state.chmod(0o755)
    refused = place.palyra("up", "--port", "0", "--json")
    assert refused.status == 3 and json.loads(refused.stdout)["error"]["code"] == "state.exposed"
    assert place.palyra("up", "--port", "70000", "--json").status == 2


def test_a_relative_workspace_is_where_the_person_stands(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (tmp_path / "here").mkdir()
    process = subprocess.Popen(
        [*PALYRA, "up", "--port", "0", "--no-browser", "--workspace", "here", "--json"],
        env=place.environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    started = json.loads(process.stdout.readline())
    assert started["data"]["workspace"] == str(tmp_path / "here")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)


@pytest.mark.promise("P-files-inside")
def test_a_workspace_that_is_not_there_is_an_error_and_stays_away(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (tmp_path / "a-file").touch()
    for name, words in (("typo", "does not exist"), ("a-file", "is not a folder"), ("~/typo", "does not exist")):
        given = name if name.startswith("~") else str(tmp_path / name)
        refused = place.palyra("up", "--port", "0", "--no-browser", "--workspace", given, "--json")
        assert (refused.status, refused.error["code"]) == (2, "workspace.bad_root")
        assert words in refused.error["message"] and "~" not in refused.error["message"]
    assert "make this one first" in refused.error["hint"]
    assert not (tmp_path / "typo").exists()
