"""Roles, and what the sections offer."""

from pathlib import Path
from typing import Any

import pytest

from fakes.console_user import ConsoleUser, console_user
from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.raw_http import make_token
from palyra.identity.api_tokens import TokenScope
from palyra.server.console.app import SECTIONS
from palyra.server.console.page import Role, includes
from palyra.server.console.rendering import Assets, environment
from palyra.server.listener import CONSOLE_PATHS

VIEWERS = {"access": {"groups": {"viewers": ["user:eve"]}}}
WRITE = {"path": "a.txt", "content": "hello"}


async def waiting(harness: GatewayHarness, **more: Any) -> str:
    record = await harness.call("fs.write", WRITE, **more)
    return f"/console/v1/approvals/{record.approval_id}/decision"


def test_roles_include_each_other() -> None:
    assert includes(Role.ADMIN, Role.VIEWER) and includes(Role.OPERATOR, Role.OPERATOR)
    assert not includes(Role.VIEWER, Role.OPERATOR)


def test_every_path_of_a_section_reaches_the_console() -> None:
    paths = [each.path for section in SECTIONS for each in (*section.pages, *section.listings, *section.writes)]
    assert {path.split("/")[1] for path in paths} <= CONSOLE_PATHS
    assert all(path.startswith("/console/v1/") for section in SECTIONS for path in [w.path for w in section.writes])
    names = [write.name for section in SECTIONS for write in section.writes]
    assert len(names) == len(set(names))


def test_every_page_of_the_menu_has_an_icon_of_its_own() -> None:
    """The macro draws a circle for a name that it does not know."""
    macros = environment(Assets.load()).get_template("macros.html").module
    icons = {page.icon: str(macros.icon(page.icon)) for each in SECTIONS for page in each.pages if not page.above}  # type: ignore[attr-defined]
    assert len(set(icons.values())) == len(icons)
    assert macros.icon("unknown") not in icons.values()  # type: ignore[attr-defined]


@pytest.mark.promise("P-console-guarded")
async def test_roles_come_from_policy_each_time(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    async with open_harness(tmp_path, VIEWERS) as harness:
        eve = await console_user(harness, "user:eve")
        assert "You may look at this" not in await eve.page("/approvals")
        refused = await eve.post(await waiting(harness), {"decision": "approve"})
        assert (refused.status, refused.document["code"]) == (403, "console.role_missing")
        boss = await console_user(harness)
        (tmp_path / "policies" / "a.cedar").write_text(
            '@id("nobody-operates")\nforbid (principal, action == Action::"console.operate", resource);\n'
            '@id("nor-administers")\nforbid (principal, action == Action::"console.administer", resource);\n'
        )
        await harness.gateway.policy.reload()
        assert (await boss.data("/console/v1/session"))["role"] == "viewer"
        agent = ConsoleUser(harness)
        got = await agent.log_in(await make_token(harness, "agent:bot", TokenScope.CALL))
        assert (got.status, got.document["code"]) == (403, "console.role_missing")
