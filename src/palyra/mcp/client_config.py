"""Ready configuration for the clients that people use: what to paste, and where it belongs."""

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

SERVER_NAME: Final = "palyra"
# Clients replace this by the variable's value: a token does not belong into a file of a project.
TOKEN_REFERENCE: Final = "${PALYRA_TOKEN}"  # noqa: S105 (a variable's name)
TOKEN_VARIABLE: Final = "PALYRA_TOKEN"  # noqa: S105


class McpClient(StrEnum):
    CLAUDE_DESKTOP = "claude-desktop"
    CLAUDE_CODE = "claude-code"
    CURSOR = "cursor"
    VSCODE = "vscode"
    ZED = "zed"
    CODEX = "codex"
    JSON = "json"


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How a client starts Palyra: a program, its arguments, and what it finds in its environment."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str] = {}

    def document(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"command": self.command, "args": list(self.args)}
        return {**shown, "env": dict(self.env)} if self.env else shown


class Remote(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon that runs already, and is reached over HTTP with a token."""

    url: str

    def document(self, token: str = TOKEN_REFERENCE) -> dict[str, Any]:
        return {"type": "http", "url": self.url, "headers": {"Authorization": f"Bearer {token}"}}


class Snippet(msgspec.Struct, frozen=True, kw_only=True):
    """``file`` is where the text belongs; ``note`` what else to know."""

    client: McpClient
    file: str
    text: str
    note: str = ""


def snippet_for(client: McpClient, how: Launch | Remote) -> Snippet:
    return _WRITERS[client](how)


def _pretty(document: Any) -> str:
    return json.dumps(document, indent=2)


def _servers(client: McpClient, file: str, note: str = "") -> Callable[[Launch | Remote], Snippet]:
    def write(how: Launch | Remote) -> Snippet:
        text = _pretty({"mcpServers": {SERVER_NAME: how.document()}})
        return Snippet(client=client, file=file, text=text, note=note)

    return write


def _vscode(how: Launch | Remote) -> Snippet:
    if isinstance(how, Remote):
        # It asks for the token once and keeps it where it keeps its secrets.
        asked = {"type": "promptString", "id": "palyra-token", "description": "Palyra API token", "password": True}
        document: dict[str, Any] = {
            "inputs": [asked],
            "servers": {SERVER_NAME: how.document("${input:palyra-token}")},
        }
    else:
        document = {"servers": {SERVER_NAME: {"type": "stdio", **how.document()}}}
    return Snippet(
        client=McpClient.VSCODE,
        file=".vscode/mcp.json",
        text=_pretty(document),
        note='for all workspaces instead: the command "MCP: Open User Configuration"',
    )


def _zed(how: Launch | Remote) -> Snippet:
    described = how.document()
    described.pop("type", None)
    return Snippet(
        client=McpClient.ZED,
        file="~/.config/zed/settings.json",
        text=_pretty({"context_servers": {SERVER_NAME: described}}),
        note="" if isinstance(how, Launch) else f"Zed takes the token as it is: replace {TOKEN_REFERENCE} by it",
    )


def _codex(how: Launch | Remote) -> Snippet:
    lines = [f"[mcp_servers.{SERVER_NAME}]"]
    if isinstance(how, Remote):
        lines += [f"url = {_toml(how.url)}", f"bearer_token_env_var = {_toml(TOKEN_VARIABLE)}"]
    else:
        lines += [f"command = {_toml(how.command)}", f"args = [{', '.join(map(_toml, how.args))}]"]
        if how.env:
            lines += ["", f"[mcp_servers.{SERVER_NAME}.env]"]
            lines += [f"{_toml(name)} = {_toml(value)}" for name, value in how.env.items()]
    return Snippet(client=McpClient.CODEX, file="~/.codex/config.toml", text="\n".join(lines))


def _toml(text: str) -> str:
    """A basic string of TOML, which JSON's strings are, but for one character that JSON leaves as it is."""
    return json.dumps(text).replace("\x7f", "\\u007f")


def _claude_desktop(how: Launch | Remote) -> Snippet:
    write = _servers(
        McpClient.CLAUDE_DESKTOP,
        "~/Library/Application Support/Claude/claude_desktop_config.json",
        "on Linux ~/.config/Claude/claude_desktop_config.json, on Windows in %APPDATA%\\Claude",
    )
    return write(how)


_WRITERS: Final[Mapping[McpClient, Callable[[Launch | Remote], Snippet]]] = {
    McpClient.CLAUDE_DESKTOP: _claude_desktop,
    McpClient.CLAUDE_CODE: _servers(
        McpClient.CLAUDE_CODE, ".mcp.json", "in the project's folder; `claude mcp add-json` takes the inner object too"
    ),
    McpClient.CURSOR: _servers(McpClient.CURSOR, ".cursor/mcp.json", "for all projects instead: ~/.cursor/mcp.json"),
    McpClient.VSCODE: _vscode,
    McpClient.ZED: _zed,
    McpClient.CODEX: _codex,
    McpClient.JSON: _servers(McpClient.JSON, "the client's own file", "most clients read this form"),
}
