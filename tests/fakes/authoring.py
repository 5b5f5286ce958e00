"""Walks through the commands of `write-a-skill.md` against a real daemon, as somebody who comes from the tutorial."""

import json
from pathlib import Path
from typing import Any

from fakes.daemon import PALYRA, Place
from fakes.documented import commands_typed_under, commands_under
from fakes.started_warm import run_palyra

PAGE = "how-to/write-a-skill.md"
BEFORE = ("tutorial/twenty-minutes.md", "3. A skill of your own")
TOO_MANY = 10


def follow_the_page(heading: str, root: Path) -> Any:
    """Runs the page's commands one after the other; the result of the last one, the call.

    In the folder and the state in which the tutorial leaves its readers: what it made there is in nobody's way.
    """
    place = Place(root / "home")
    folder = root / "work"
    folder.mkdir()
    commands = commands_under(PAGE, heading)
    assert len([words for words in commands if words[0] == "palyra"]) < TOO_MANY
    with place.daemon():
        made = [words for words in commands_typed_under(*BEFORE) if "call" not in words]
        assert _follow(made, place, folder)["approve"]["state"] == "approved"
        answers = _follow(commands, place, folder)
        project = next(words[1] for words in commands if words[0] == "cd")
        for section in ("Publish it", "Try it while you write"):
            answers |= _follow(commands_under(PAGE, section), place, folder / project)
    assert answers["test"]["failed"] == 0
    assert answers["run"]["output"] == {"greeting": "Hello, Ada!"}, answers["run"]
    assert answers["install"]["state"] == "quarantined"
    return answers["call"]


def _follow(commands: list[list[str]], place: Place, folder: Path) -> dict[str, Any]:
    """What each command answered, by its verb."""
    answers: dict[str, Any] = {}
    for words in commands:
        if words[0] == "cd":
            folder /= words[1]
            continue
        if words[:3] == ["palyra", "skill", "approve"]:
            # At a terminal the command asks; here it is told what install printed.
            words = [*words, "--digest", answers["install"]["digest"]]
        answers[words[2] if words[1] == "skill" else words[1]] = _palyra(words, place, folder)
    return answers


def _palyra(words: list[str], place: Place, folder: Path) -> Any:
    command = [*PALYRA, *words[1:], "--json"]
    done = run_palyra(command, env=place.environment, cwd=folder, given="", text=True, timeout=300)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return json.loads(done.stdout)["data"]
