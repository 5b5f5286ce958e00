"""An agent's day in Tier C with the real tools: what it needs of protected names works, and nothing is moved aside."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.git_payloads import git, make_repository

# Git itself demands this for submodules from a folder, inside Palyra and outside.
FROM_FOLDERS = ("-c", "protocol.file.allow=always")


class Session:
    def __init__(self, harness: GatewayHarness) -> None:
        self.harness = harness
        self.root = harness.workspace

    async def run(self, *words: str, cwd: str = ".") -> dict[str, Any]:
        arguments = {"command": words[0], "args": list(words[1:]), "cwd": cwd, "timeout_ms": 120_000}
        record = await self.harness.call("process.run", arguments)
        assert record.state == "succeeded", record.error
        assert record.result["exit_code"] == 0, (words, record.result["stdout"], record.result["stderr"])
        line = next(each for each in record.receipt if each["layer"] == "protected_names")
        assert line["held"], line["got"]
        assert "moved aside" not in line["got"]
        result: dict[str, Any] = record.result
        return result


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    settings = {
        "workspace": {"root": str(tmp_path / "workspace")},
        "sandbox": {"allow_interpreters": True},
        "tools": {"preapproved": ["process.*", "fs.*"]},
    }
    make_repository(tmp_path / "workspace" / "origin")
    async with open_harness(tmp_path, settings) as harness:
        yield Session(harness)


async def test_an_agent_clones_commits_rebases_and_adds_submodules_and_worktrees(session: Session) -> None:
    run = session.run
    await run("git", "clone", "-q", "origin", "work")
    await run("git", "clone", "-q", f"file://{session.root}/origin", "second")
    await run("git", "clone", "-q", "--bare", "origin", "bare.git")
    await run("git", "config", "user.name", "an agent", cwd="work")
    await run("git", "config", "user.email", "agent@example.test", cwd="work")
    await run("git", "checkout", "-q", "-b", "topic", cwd="work")
    (session.root / "work/new").write_text("1\n")
    await run("git", "add", "new", cwd="work")
    await run("git", "commit", "-q", "-m", "new", cwd="work")
    await run("git", "checkout", "-q", "main", cwd="work")
    await run("git", "commit", "-q", "--allow-empty", "-m", "elsewhere", cwd="work")
    await run("git", "checkout", "-q", "topic", cwd="work")
    await run("git", "rebase", "-q", "main", cwd="work")
    await run("git", *FROM_FOLDERS, "submodule", "--quiet", "add", f"{session.root}/origin", "lib/sub", cwd="work")
    await run("git", "commit", "-q", "-m", "submodule", cwd="work")
    await run("git", "worktree", "add", "-q", "tree", "main", cwd="work")
    await run("git", "status", cwd="work/tree")
    await run("git", "worktree", "remove", "--force", "tree", cwd="work")
    await run("git", *FROM_FOLDERS, "clone", "-q", "--recurse-submodules", "work", "third")
    await run("git", *FROM_FOLDERS, "submodule", "update", "--init", cwd="third")
    await run("git", "remote", "add", "other", "../origin", cwd="work")
    await run("git", "branch", "--set-upstream-to=origin/main", cwd="work")
    await run("git", "push", "-q", "origin", "topic", cwd="work")
    await run("git", "init", "-q", "fresh")
    assert git(session.root / "work", "log", "-1", "--format=%an %s").stdout == "an agent submodule\n"
    assert git(session.root / "third/lib/sub", "log", "-1", "--format=%s").stdout == "second\n"
    assert git(session.root / "work", "fsck", "--strict").returncode == 0


async def test_an_agent_installs_packages_of_node_and_python(session: Session) -> None:
    root = session.root
    package = root / "package"
    (package / "bin").mkdir(parents=True)
    (package / "package.json").write_text('{"name": "tool", "version": "1.0.0", "bin": {"tool": "bin/tool.js"}}')
    (package / "bin/tool.js").write_text("#!/usr/bin/env node\nconsole.log('it works')\n")
    # Packages bring such files with them.
    (package / ".vscode").mkdir()
    (package / ".vscode/settings.json").write_text("{}")
    (package / "CLAUDE.md").write_text("about this package")
    await session.run("npm", "pack", "--silent", cwd="package")
    (root / "app").mkdir()
    (root / "app/package.json").write_text('{"name": "app", "version": "1.0.0"}')
    await session.run("npm", "install", "--offline", "--no-audit", "--no-fund", "../package/tool-1.0.0.tgz", cwd="app")
    done = await session.run("npm", "exec", "--offline", "--no", "tool", cwd="app")
    assert done["stdout"] == "it works\n"
    await session.run("python3", "-m", "venv", ".venv")
    wheel(root / "thing-1.0-py3-none-any.whl")
    await session.run(".venv/bin/python", "-m", "pip", "install", "-q", "--no-index", "thing-1.0-py3-none-any.whl")
    assert (root / "app/node_modules/tool/CLAUDE.md").exists()
    (pth,) = root.glob(".venv/lib/python*/site-packages/thing.pth")
    assert pth.exists()


def wheel(path: Path) -> None:
    """Write a package whose install brings a .pth file, as many do."""
    import zipfile

    info = "thing-1.0.dist-info"
    files = {
        "thing.py": "VALUE = 1\n",
        "thing.pth": "import sys\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, text)
