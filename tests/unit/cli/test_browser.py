"""``palyra browser`` (``browser``, ``browser_use``, ``browser_admin``): every command of the how-to is understood."""

import re
import shlex
from pathlib import Path

import pytest

from fakes.command_line import CommandLine, command_line_in
from fakes.daemon import Place

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "use-the-browser.md"
COMMANDS = re.findall(r"^palyra (browser .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
NOT_AVAILABLE, USAGE = 6, 2


@pytest.fixture
def palyra(tmp_path: Path) -> CommandLine:
    return command_line_in(tmp_path)


def test_every_documented_command_is_understood_and_needs_a_daemon(palyra: CommandLine) -> None:
    assert len(COMMANDS) > 20
    for command in COMMANDS:
        ended = palyra(*shlex.split(command), "--json")
        code = ended.document["error"]["code"]
        # Opening is judged by the settings first; all others go to the browser.
        assert code in ("browser.needs_daemon", "browser.host_beyond_settings"), (command, ended)


def test_mistakes_are_told_as_such(palyra: CommandLine) -> None:
    assert palyra("browser", "act", "S").status == USAGE
    assert palyra("browser", "act", "S", "fly").status == USAGE
    assert palyra("browser", "act", "S", "--input", "{nonsense").status == USAGE
    assert palyra("browser", "lst").status == USAGE
    assert "list" in palyra("browser", "lst").err


def test_a_refusal_tells_of_settings_that_are_newer_than_the_daemon(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.daemon():
        refused = place.palyra("browser", "open", "https://shop.example/")
        assert "browser.host_beyond_settings" in refused.stderr and "was changed after" not in refused.stderr
        place.config.write_text('[egress]\nallowed_hosts = ["shop.example"]\n')
        again = place.palyra("browser", "open", "https://shop.example/")
    assert "browser.host_beyond_settings" in again.stderr and "was changed after the daemon started" in again.stderr
