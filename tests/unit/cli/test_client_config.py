import json
import tomllib

import pytest

from palyra.cli.commands.mcp import Launch, McpClient, Remote, snippet_for

LAUNCH = Launch(command="/opt/my tools/palyra", args=("mcp", "--principal", "agent:x"), env={"A": 'b"c'})
REMOTE = Remote(url="http://127.0.0.1:7142/mcp")


@pytest.mark.parametrize(
    ("client", "key"),
    [
        (McpClient.CLAUDE_DESKTOP, "mcpServers"),
        (McpClient.CLAUDE_CODE, "mcpServers"),
        (McpClient.CURSOR, "mcpServers"),
        (McpClient.VSCODE, "servers"),
        (McpClient.ZED, "context_servers"),
        (McpClient.JSON, "mcpServers"),
    ],
)
def test_clients_that_read_json_get_what_starts_palyra(client: McpClient, key: str) -> None:
    server = json.loads(snippet_for(client, LAUNCH).text)[key]["palyra"]
    assert server["command"] == LAUNCH.command and server["args"] == list(LAUNCH.args)
    assert server["env"] == {"A": 'b"c'}
    remote = json.loads(snippet_for(client, REMOTE).text)[key]["palyra"]
    assert remote["url"] == REMOTE.url and remote["headers"]["Authorization"].startswith("Bearer ${")


def test_codex_reads_toml() -> None:
    server = tomllib.loads(snippet_for(McpClient.CODEX, LAUNCH).text)["mcp_servers"]["palyra"]
    assert server == {"command": LAUNCH.command, "args": list(LAUNCH.args), "env": {"A": 'b"c'}}
    remote = tomllib.loads(snippet_for(McpClient.CODEX, REMOTE).text)["mcp_servers"]["palyra"]
    assert remote == {"url": REMOTE.url, "bearer_token_env_var": "PALYRA_TOKEN"}


def test_every_client_has_a_place_for_it_and_no_token_is_written_down() -> None:
    for client in McpClient:
        for how in (LAUNCH, REMOTE):
            snippet = snippet_for(client, how)
            assert snippet.file and "plr_" not in snippet.text
