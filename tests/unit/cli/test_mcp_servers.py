from fakes.daemon import Place
from palyra.cli.commands.mcp import render_server
from palyra.client.views import McpServerView


def test_a_server_is_shown_with_what_changed() -> None:
    tool = {
        "tool": "get",
        "state": "quarantined",
        "digest": "d",
        "description": "new\x1b[31m words",
        "changed": ["description"],
        "approved": {"description": "old words"},
        "definition": {"input_schema": {"type": "object"}},
    }
    text = render_server(McpServerView(document={}, name="clock", command=("x", "y"), tools=(tool,)))
    assert "quarantined" in text and "old words" in text and "x y" in text
    # What a server says of itself does not paint the terminal.
    assert "\x1b" not in text


def test_without_servers_there_are_none(tmp_path: "object") -> None:
    from pathlib import Path

    place = Place(Path(str(tmp_path)))
    assert place.palyra("mcp", "servers", "--json").data == {"servers": []}
    missing = place.palyra("mcp", "show", "clock", "--json")
    assert missing.error["code"] == "mcp.unknown_server"
    assert place.palyra("mcp", "approve", "clock", "--digest", "x", "--json").status == 2
