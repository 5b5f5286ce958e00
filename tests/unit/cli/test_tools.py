from pathlib import Path

import pytest

from fakes.command_line import CommandLine, command_line_in, use_tiny_api
from fakes.tiny_api import TinyApi
from palyra.cli.commands.call import render_tool
from palyra.client.protocol import convert_view
from palyra.client.views import ToolView


@pytest.fixture
def palyra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    use_tiny_api(monkeypatch)
    return command_line_in(tmp_path)


def test_list(palyra: CommandLine) -> None:
    assert "echo" in palyra("tools", "list").out
    names = [tool["name"] for tool in palyra("tools", "list", "--json").document["data"]["tools"]]
    assert names == ["echo", "sleep"]


def test_show(palyra: CommandLine) -> None:
    assert "network" in palyra("tools", "show", "fs.read").out
    assert palyra("tools", "show", "fs.read", "--json").document["data"]["name"] == "fs.read"


def test_a_description_cannot_steer_the_terminal() -> None:
    view = convert_view({"name": "x", "description": "a\x1b[2J\nname  y", "input_schema": {"k": "\u202e"}}, ToolView)
    lines = render_tool(view).split("\n")
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("name") for line in lines)


def test_the_tiny_api_is_the_one_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api: TinyApi = use_tiny_api(monkeypatch)
    command_line_in(tmp_path)("tools", "show", "a.b")
    assert api.seen[-1]["path"] == "/v1/tools/a.b"
