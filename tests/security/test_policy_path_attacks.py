"""Class *Policies*: a policy about a path is walked round with a link, another spelling, or a link turned in time."""

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.browsing import browsing, opened
from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.wasm_guests import wasm
from palyra.executors.worker.files import copy_to_workspace
from palyra.fleet.domain.workspace_scope import ArtifactRef, WorkerWorkspaceScope
from palyra.fleet.store.artifacts import ArtifactStore
from palyra.pipeline.domain.approval import ApprovalScope
from palyra.pipeline.domain.call import CallState, ExecutionPlan, ExecutorOutcome
from palyra.workspace.errors import PlaceChanged

pytestmark = pytest.mark.promise("P-policy-paths")

SETTINGS: dict[str, Any] = {
    "sandbox": {"tier": "b", "allow_interpreters": True},
    "wasm": {"workspace_modules": True},
    "access": {"principals": ["*"], "operators": ["agent:bot", "user:alice"]},
    "tools": {"allowed": ["*"], "preapproved": ["*"]},
}
FORBIDDEN = """@id("published") forbid (principal, action == Action::"tool.execute", resource)
    when { context.paths.containsAny(["docs/index.md", "docs", "docs/m.wasm"]) };"""
ONLY_NOTES = """@id("notes") forbid (principal, action == Action::"tool.execute", resource)
    unless { ["notes/a.md", "notes/new.md"].containsAll(context.paths) };"""
ANY_NOTE = """@id("notes") forbid (principal, action == Action::"tool.execute", resource)
    unless { context.paths.containsAny(["notes/a.md", "notes/new.md"]) };"""


def policies(tmp_path: Path, text: str) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "own.cedar").write_text(text)


def site(workspace: Path) -> None:
    for folder in ("docs", "notes", "sub"):
        (workspace / folder).mkdir()
    (workspace / "docs" / "index.md").write_text("published")
    (workspace / "docs" / "m.wasm").write_bytes(wasm("(module)"))
    (workspace / "notes" / "a.md").write_text("a note")
    (workspace / "d").symlink_to("docs")
    (workspace / "sub" / "up").symlink_to("..")
    (workspace / "d2").symlink_to("sub/up/d")
    (workspace / "page.md").symlink_to("docs/index.md")
    (workspace / "m").symlink_to("docs/m.wasm")
    (workspace / "absolute").symlink_to(workspace / "docs")


def write(path: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "fs.write", {"path": path, "content": "mine", "mode": "overwrite", **more}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        write("docs/index.md"),
        write("d/index.md"),
        write("d2/index.md"),
        write("./d/./index.md"),
        write("sub/up/docs/index.md"),
        write("page.md"),
        ("fs.patch", {"path": "d/index.md", "edits": [{"old": "published", "new": "mine"}]}),
        ("fs.read", {"path": "page.md"}),
        ("fs.read", {"path": "d/index.md"}),
        ("fs.list", {"path": "d"}),
        ("fs.search", {"path": "d2", "query": "published"}),
        ("fs.search", {"path": "page.md", "query": "published"}),
        ("process.run", {"command": "cat", "args": ["index.md"], "cwd": "d"}),
        ("process.run", {"command": "cat", "args": ["index.md"], "cwd": "./docs/"}),
        ("process.run", {"command": "cat", "args": ["index.md"], "cwd": "sub/../docs"}),
        ("process.run", {"command": "cat", "args": ["index.md"], "cwd": "absolute"}),
        ("process.start", {"command": "cat", "args": ["index.md"], "cwd": "sub/up/d"}),
        ("plugin.run", {"path": "m"}),
        ("plugin.run", {"path": "./docs//m.wasm"}),
    ],
    ids=str,
)
async def test_a_forbidden_path_is_forbidden_by_every_way_to_it(
    tmp_path: Path, tool: str, arguments: dict[str, Any]
) -> None:
    policies(tmp_path, FORBIDDEN)
    async with open_harness(tmp_path, SETTINGS) as harness:
        site(harness.workspace)
        denied = await harness.call(tool, arguments)
        assert denied.state is CallState.DENIED, (denied.state, denied.result, denied.error)
        assert denied.decision is not None and denied.decision["policies"] == ["published"]
        assert (harness.workspace / "docs" / "index.md").read_text() == "published"
        asked = [each for kind, each in harness.events(call=denied.call_id) if kind == "call.decided"]
        assert any("docs" in str(each["policy_request"]["context"]["paths"]) for each in asked)


@pytest.mark.parametrize("policy", [ONLY_NOTES, ANY_NOTE])
async def test_a_permitted_name_that_leads_elsewhere_permits_nothing(tmp_path: Path, policy: str) -> None:
    policies(tmp_path, policy)
    async with open_harness(tmp_path, SETTINGS) as harness:
        site(harness.workspace)
        assert (await harness.call(*write("notes/a.md"))).state is CallState.SUCCEEDED
        assert (await harness.call(*write("notes/new.md"))).state is CallState.SUCCEEDED
        (harness.workspace / "notes" / "a.md").unlink()
        (harness.workspace / "notes" / "a.md").symlink_to("../docs/index.md")
        assert (await harness.call("fs.read", {"path": "notes/a.md"})).state is CallState.DENIED
        (harness.workspace / "notes").rename(harness.workspace / "old")
        (harness.workspace / "notes").symlink_to("docs")
        for arguments in (write("notes/new.md"), write("notes/a.md"), ("fs.read", {"path": "notes/a.md"})):
            assert (await harness.call(*arguments)).state is CallState.DENIED
        assert not (harness.workspace / "docs" / "new.md").exists()


async def test_a_path_without_links_is_one_question(tmp_path: Path) -> None:
    async with open_harness(tmp_path, SETTINGS) as harness:
        site(harness.workspace)
        ran = await harness.call(*write("notes/b/c.md", create_parents=True))
        assert ran.state is CallState.SUCCEEDED
        assert harness.kinds(call=ran.call_id).count("call.decided") == 1


def before_execution(harness: GatewayHarness, executor: str, change: Callable[[], None]) -> None:
    """Change the workspace when the call is decided on and has not begun to act."""
    real = harness.gateway.executors[executor]

    class Swapping:
        name, keeps_deadline = real.name, real.keeps_deadline

        async def execute(self, plan: ExecutionPlan) -> ExecutorOutcome:
            change()
            return await real.execute(plan)

    harness.gateway.executors.put(executor, Swapping())


@pytest.mark.parametrize(
    ("tool", "arguments", "executor"),
    [
        (*write("way/index.md"), "files"),
        ("fs.patch", {"path": "way/index.md", "edits": [{"old": "published", "new": "mine"}]}, "files"),
        ("fs.read", {"path": "way/index.md"}, "files"),
        ("fs.read", {"path": "file"}, "files"),
        ("fs.list", {"path": "way"}, "files"),
        ("fs.search", {"path": "way", "query": "published"}, "files"),
        ("fs.search", {"path": "file", "query": "published"}, "files"),
        ("process.run", {"command": "cat", "args": ["index.md"], "cwd": "way"}, "process"),
        ("process.start", {"command": "cat", "args": ["index.md"], "cwd": "way"}, "process"),
        ("plugin.run", {"path": "module"}, "wasm"),
    ],
    ids=str,
)
async def test_a_link_that_is_turned_after_the_decision_refuses_the_call(
    tmp_path: Path, tool: str, arguments: dict[str, Any], executor: str
) -> None:
    policies(tmp_path, FORBIDDEN)
    async with open_harness(tmp_path, SETTINGS) as harness:
        site(harness.workspace)
        (harness.workspace / "notes" / "index.md").write_text("published")
        (harness.workspace / "notes" / "m.wasm").write_bytes(wasm("(module)"))
        links = {"way": "", "file": "/index.md", "module": "/m.wasm"}
        for link, inside in links.items():
            (harness.workspace / link).symlink_to(f"notes{inside}")

        def turn() -> None:
            for link, inside in links.items():
                (harness.workspace / link).unlink()
                (harness.workspace / link).symlink_to(f"docs{inside}")

        before_execution(harness, executor, turn)
        refused = await harness.call(tool, arguments)
        assert refused.error is not None and refused.error["code"] == "workspace.place_changed", refused.error
        assert refused.result is None and (harness.workspace / "docs" / "index.md").read_text() == "published"


async def test_a_path_that_led_out_when_it_was_decided_leads_nowhere_later(tmp_path: Path) -> None:
    policies(tmp_path, FORBIDDEN)
    async with open_harness(tmp_path, SETTINGS) as harness:
        site(harness.workspace)
        way = harness.workspace / "way"
        way.symlink_to("/etc")

        def turn() -> None:
            way.unlink()
            way.symlink_to("docs")

        before_execution(harness, "files", turn)
        refused = await harness.call(*write("way/index.md"))
        assert refused.error is not None and refused.error["code"] == "workspace.place_changed"
        assert (harness.workspace / "docs" / "index.md").read_text() == "published"


@pytest.mark.promise("P-approval-exact")
async def test_an_approval_is_bound_to_the_place_that_its_path_led_to(tmp_path: Path) -> None:
    settings = {**SETTINGS, "tools": {"allowed": ["*"]}}
    async with open_harness(tmp_path, settings) as harness:
        site(harness.workspace)
        way = harness.workspace / "way"
        way.symlink_to("notes")
        for scope, pattern in ((ApprovalScope.ONCE, None), (ApprovalScope.PATTERN, {"path": "way/*"})):
            asked = await harness.call(*write("way/index.md"))
            approval = await harness.approve(asked.approval_id, scope=scope, pattern=pattern)
            assert approval.touches["paths"] == ["way/index.md", "notes/index.md"]
            way.unlink()
            way.symlink_to("docs")
            again = await harness.call(*write("way/index.md"))
            assert again.state is CallState.NEEDS_APPROVAL and again.approval_id != asked.approval_id
            way.unlink()
            way.symlink_to("notes")
            assert (await harness.call(*write("way/index.md"))).state is CallState.SUCCEEDED
        assert (harness.workspace / "docs" / "index.md").read_text() == "published"


async def test_the_browser_is_no_way_round_a_policy_about_paths(tmp_path: Path) -> None:
    policies(tmp_path, FORBIDDEN)
    async with browsing(tmp_path, tools={"preapproved": ["fs.*"]}) as (harness, browser):
        site(harness.workspace)
        agent = await opened(harness)
        await agent.done("browser.downloads")
        download = browser.records[0].id

        def upload(path: str) -> tuple[str, dict[str, Any]]:
            return "browser.act", {"actions": [{"action": "upload", "target": "e1", "paths": [path]}]}

        def save(path: str) -> tuple[str, dict[str, Any]]:
            return "browser.downloads", {"save": download, "path": path, "replace": True}

        for tool, arguments in (upload("d/index.md"), upload("page.md"), save("d/index.md"), save("./docs/index.md")):
            denied = await agent.call(tool, approve=True, **arguments)
            assert denied.state is CallState.DENIED, denied.error
        way = harness.workspace / "way"
        (harness.workspace / "notes" / "index.md").write_text("mine")

        def turn() -> None:
            way.unlink()
            way.symlink_to("docs")

        before_execution(harness, "browser", turn)
        for tool, arguments in (upload("way/index.md"), save("way/index.md")):
            way.unlink(missing_ok=True)
            way.symlink_to("notes")
            refused = await agent.call(tool, approve=True, **arguments)
            assert refused.error is not None and refused.error["code"] == "workspace.place_changed", refused.error
        assert browser.asked == [] and (harness.workspace / "docs" / "index.md").read_text() == "published"


def test_what_comes_back_from_a_worker_lands_where_it_was_decided(tmp_path: Path) -> None:
    workspace, store = tmp_path / "w", ArtifactStore(tmp_path / "artifacts")
    workspace.mkdir()
    site(workspace)
    digest = hashlib.sha256(b"mine").hexdigest()
    store.add(iter([b"mine"]), 4, digest)
    scope = WorkerWorkspaceScope.parse(str(workspace), ("way/index.md",), read_only=False)
    made = (ArtifactRef(path="way/index.md", digest_sha256=digest, size=4, executable=False),)
    (workspace / "way").symlink_to("docs")
    with pytest.raises(PlaceChanged):
        copy_to_workspace(scope, made, (), store, threading.Event(), decided={"way/index.md": "notes/index.md"})
    assert (workspace / "docs" / "index.md").read_text() == "published"


async def test_a_name_that_is_no_text_is_decided_and_opened(tmp_path: Path) -> None:
    async with open_harness(tmp_path, SETTINGS) as harness:
        folder = bytes(harness.workspace) + b"/\xff\xfe"
        Path(folder.decode("utf-8", "surrogateescape")).mkdir()
        (harness.workspace / "way").symlink_to(folder.decode("utf-8", "surrogateescape").rpartition("/")[2])
        assert (await harness.call(*write("way/index.md"))).state is CallState.SUCCEEDED
