import json
from pathlib import Path

import pytest

from fakes.daemon import Place


@pytest.mark.parametrize("client", ["claude-desktop", "claude-code", "cursor", "vscode", "zed", "codex", "json"])
def test_every_client_has_its_configuration(tmp_path: Path, client: str) -> None:
    answer = Place(tmp_path).palyra("mcp", "config", "--client", client, "--json")
    assert answer.status == 0 and "mcp" in answer.data["text"] and answer.data["file"]


def test_what_is_pasted_is_on_stdout_and_where_on_stderr(tmp_path: Path) -> None:
    place = Place(tmp_path)
    answer = place.palyra("mcp", "config", "--client", "cursor")
    server = json.loads(answer.stdout)["mcpServers"]["palyra"]
    assert server["args"][-2:] == ["--principal", "agent:cursor"] and ".cursor/mcp.json" in answer.stderr
    over = place.palyra("--state-dir", str(tmp_path / "s"), "mcp", "config", "--principal", "agent:me")
    args = json.loads(over.stdout)["mcpServers"]["palyra"]["args"]
    assert str(tmp_path / "s") in args and args[-1] == "agent:me"
    http = place.palyra("mcp", "config", "--http")
    assert json.loads(http.stdout)["mcpServers"]["palyra"]["url"] == "http://127.0.0.1:7142/mcp"
    assert "palyra token create --principal agent:mcp" in http.stderr


def test_a_daemon_that_cannot_start_is_an_error_that_names_the_log(tmp_path: Path) -> None:
    place = Place(tmp_path, '[daemon]\nhost = "192.0.2.1"\n')
    answer = place.palyra("mcp")
    assert answer.status == 6 and "mcp-daemon.log" in answer.stderr and answer.stdout == ""
    assert "insecure_bind" in (place.state / "mcp-daemon.log").read_text()


def test_the_owners_token_is_not_sent_to_an_address_somebody_named(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.daemon() as daemon:
        answer = place.palyra("mcp", "--url", daemon.url)
    assert answer.status == 2 and "PALYRA_TOKEN" in answer.stderr
