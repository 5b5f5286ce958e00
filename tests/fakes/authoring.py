"""Walks through the commands of `write-a-skill.md` against a real daemon, as somebody who has never done it."""

import json
from pathlib import Path
from typing import Any

from fakes.daemon import PALYRA, Place
from fakes.documented import commands_under
from fakes.started_warm import run_palyra

PAGE = "how-to/write-a-skill.md"
TOO_MANY = 10


def follow_the_page(heading: str, root: Path) -> Any:
    """Runs the page's commands one after the other; the result of the last one, the call."""
    place = Place(root / "home")
    folder = root / "work"
    folder.mkdir()
    commands = commands_under(PAGE, heading)
    assert len([words for words in commands if words[0] == "palyra"]) < TOO_MANY
    answers: dict[str, Any] = {}
    with place.daemon():
        for words in commands:
            if words[0] == "cd":
                folder /= words[1]
                continue
            if words[:3] == ["palyra", "skill", "approve"]:
                # At a terminal the command asks; here it is told what install printed.
                words = [*words, "--digest", answers["install"]["digest"]]
            answers[words[2] if words[1] == "skill" else words[1]] = _palyra(words, place, folder)
        for section in ("Publish it", "Try it while you write"):
            for words in commands_under(PAGE, section):
                answers[words[2]] = _palyra(words, place, folder)
    assert answers["test"]["failed"] == 0
    assert answers["run"]["output"] == {"greeting": "Hello, Ada!"}, answers["run"]
    assert answers["install"]["state"] == "quarantined"
    return answers["call"]


def _palyra(words: list[str], place: Place, folder: Path) -> Any:
    command = [*PALYRA, *words[1:], "--json"]
    done = run_palyra(command, env=place.environment, cwd=folder, given="", text=True, timeout=300)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return json.loads(done.stdout)["data"]
