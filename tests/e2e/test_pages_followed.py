"""Pages of the documentation, followed word by word: every command works, and a transcript is what is printed."""

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from fakes.daemon import Place
from fakes.mcp_clients import meta
from fakes.page_reader import FOLLOWED, ROOT, Reader, blocks_of, check, steady


@pytest.mark.promise("P-documented")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", FOLLOWED)
def test_every_command_of_the_page_works_as_printed(page: str, tmp_path: Path) -> None:
    assert check(ROOT / page, Reader(tmp_path / "you")) > 0


def test_the_python_client_does_what_its_page_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All examples of the page, one after the other."""
    place = Place(tmp_path)
    with place.daemon() as daemon:
        scope: dict[str, object] = {}
        for block in blocks_of(ROOT / "docs" / "how-to" / "use-the-python-client.md"):
            code = block.text.replace("http://127.0.0.1:7142", daemon.url).replace("plr_…", daemon.token)
            exec(compile(code, block.page.name, "exec"), scope)  # the page's own code
        scope["client"].close()  # type: ignore[attr-defined]
    said = capsys.readouterr().out
    assert "{'text': 'hi'} ('baseline.allowed-tools',)" in said or "baseline.allowed-tools" in said
    assert "ask a person about" in said and "'used': 1" in said and "call.finished" in said


@pytest.mark.promise("P-mcp-client")
@pytest.mark.timeout(400)
async def test_the_entry_that_the_readme_writes_connects_an_agent(tmp_path: Path) -> None:
    page, reader = ROOT / "README.md", Reader(tmp_path / "you")
    try:
        for _, command, _, _ in reader.follow(page):
            if command.startswith("palyra mcp config"):
                break
        project = reader.path("src/my-project")
        entry = json.loads((project / ".mcp.json").read_text())["mcpServers"]["palyra"]
        program = StdioServerParameters(**entry, env=reader.environment, cwd=project)
        async with Client(stdio_client(program)) as agent:
            offered = {tool.name for tool in (await agent.list_tools()).tools}
            sentence = re.search(r"It has the tools (.*?) and more", page.read_text(encoding="utf-8"), re.DOTALL)
            assert sentence is not None
            assert set(re.findall(r"`(\w+)`", sentence[1])) <= offered
            waiting = await agent.call_tool("fs_write", {"path": "notes.txt", "content": "hello\n"})
            assert meta(waiting, "status") == "needs_approval" and not (project / "notes.txt").exists()
            reader.typed(f"palyra approvals approve {meta(waiting, 'approval_id')}", "Approve it? [y/N]: y")
            assert reader.status == 0
            written = await agent.call_tool("fs_write", {"path": "notes.txt", "content": "hello\n"})
            assert not written.is_error and (project / "notes.txt").read_text() == "hello\n"
    finally:
        reader.stop()


@pytest.mark.promise("P-documented")
def test_the_picture_of_the_readme_shows_what_a_terminal_shows(tmp_path: Path) -> None:
    """``scripts/draw_terminal.py`` draws it again. Ids and times differ."""
    drawn = tmp_path / "terminal.svg"
    subprocess.run([sys.executable, ROOT / "scripts" / "draw_terminal.py", "--output", drawn], check=True)
    assert transcript_of(drawn) == transcript_of(ROOT / "docs" / "images" / "terminal.svg")


def transcript_of(picture: Path) -> str:
    return steady(ElementTree.parse(picture).findtext("{http://www.w3.org/2000/svg}desc") or "")
