"""A browser session through MCP: one call opens it, later ones use its handle, and pictures come as pictures."""

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.daemon import Place
from fakes.mcp_clients import MODES, TRANSPORTS, connected, meta, words
from fakes.web_application import SHOP, web_application

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.promise("P-mcp-client")
@pytest.mark.timeout(300)
async def test_a_browser_session_by_its_handle_over_both_transports(tmp_path: Path) -> None:
    with web_application() as site:
        hosts = msgspec.json.encode([f"{SHOP}:{site.port}"]).decode()
        place = Place(
            tmp_path,
            f"""
[tools]
preapproved = ["browser.*"]
[egress]
allowed_hosts = {hosts}
static_hosts = {{ "{SHOP}" = ["127.0.0.1"] }}
[browser]
ready = 1
private_targets = {hosts}
""",
        )
        with place.daemon(browser=True) as daemon:
            with daemon.client() as owner:
                bot, other = (owner.create_token(f"agent:{name}").token.reveal() for name in ("bot", "other"))
            for transport, mode in zip(TRANSPORTS, MODES, strict=True):
                async with (
                    connected(transport, place, daemon, bot, mode=mode) as client,
                    connected(transport, place, daemon, other, mode=mode) as stranger,
                ):
                    await browse(client, stranger, site.url("/login"))


async def browse(client: Any, stranger: Any, url: str) -> None:
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert tools["browser_open"].annotations.open_world_hint
    assert "image_base64" not in tools["browser_screenshot"].output_schema["properties"]
    opened = await client.call_tool("browser_open", {"url": url})
    assert not opened.is_error, words(opened)
    handle = {"session": opened.structured_content["session"]}
    seen = await client.call_tool("browser_snapshot", handle)
    assert not seen.is_error and "Password" in words(seen), words(seen)
    shot = await client.call_tool("browser_screenshot", handle)
    assert not shot.is_error, words(shot)
    [picture] = [block for block in shot.content if block.type == "image"]
    assert picture.mime_type == "image/png" and base64.b64decode(picture.data).startswith(PNG)
    assert picture.data not in words(shot)
    # Somebody else's handle is nobody's.
    stolen = await stranger.call_tool("browser_snapshot", handle)
    assert stolen.is_error and meta(stolen, "error")["code"].startswith("browser."), words(stolen)
    closed = await client.call_tool("browser_close", handle)
    assert not closed.is_error, words(closed)
