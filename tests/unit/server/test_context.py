"""The questions that the routes put to policy."""

from pathlib import Path

import pytest

from fakes.gateway_harness import open_harness
from palyra.identity.api_tokens import ScopeMissing, TokenRecord, TokenScope
from palyra.ids import Principal
from palyra.pipeline.domain.approval import SelfApproval, UnknownApproval
from palyra.pipeline.store.approval_tables import read_approval
from palyra.server.context import ActionDenied, Caller

WRITE = {"path": "a.txt", "content": "hello"}


def a_caller(principal: str, *scopes: TokenScope) -> Caller:
    record = TokenRecord(token_id="t", secret_sha256="", principal=principal, scopes=scopes, created_ms=0)
    return Caller(token=record, principal=Principal.parse(principal))


@pytest.mark.promise("P-approval-person")
async def test_only_operators_decide_and_never_on_their_own_request(tmp_path: Path) -> None:
    settings = {"access": {"operators": ["user:operator", "user:second"]}}
    async with open_harness(tmp_path, settings) as harness:
        service = harness.gateway.service
        asked = await harness.call("fs.write", WRITE, principal="user:second")
        approval = read_approval(harness.gateway.store, asked.approval_id or "")
        boss = a_caller("user:operator", TokenScope.OPERATE)
        service.require_decider(boss, Principal.parse("user:operator"), approval, "once")
        with pytest.raises(SelfApproval):
            service.require_decider(boss, Principal.parse("user:second"), approval, "once")
        with pytest.raises(SelfApproval):
            # Nor may who asked decide in another's name.
            asker = a_caller("user:second", TokenScope.OPERATE)
            service.require_decider(asker, Principal.parse("user:operator"), approval, "once")
        with pytest.raises(ActionDenied) as caught:
            service.require_decider(boss, Principal.parse("agent:bot"), approval, "once")
        assert caught.value.code == "action.denied"


async def test_a_policy_may_forbid_a_scope(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "scope.cedar").write_text(
        '@id("no-boxes")\nforbid (principal, action == Action::"approval.decide", resource)'
        ' when { context.scope == "timeboxed" };\n'
    )
    async with open_harness(tmp_path) as harness:
        asked = await harness.call("fs.write", WRITE)
        approval = read_approval(harness.gateway.store, asked.approval_id or "")
        operator = Principal.parse("user:operator")
        boss = a_caller("user:operator", TokenScope.OPERATE)
        harness.gateway.service.require_decider(boss, operator, approval, "once")
        with pytest.raises(ActionDenied) as caught:
            harness.gateway.service.require_decider(boss, operator, approval, "timeboxed")
        assert caught.value.details["policies"] == ["no-boxes"]


async def test_tokens_and_settings_take_both_the_scope_and_the_policy(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        service = harness.gateway.service
        service.require_operator(a_caller("user:operator", TokenScope.OPERATE), "config.change")
        with pytest.raises(ScopeMissing):
            service.require_operator(a_caller("user:operator", TokenScope.CALL), "config.change")
        with pytest.raises(ActionDenied):
            service.require_operator(a_caller("agent:bot", TokenScope.OPERATE), "config.change")


async def test_status_is_for_whoever_may_use_palyra_at_all(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {"access": {"principals": ["agent:bot"]}}) as harness:
        harness.gateway.service.require_permitted(a_caller("agent:bot", TokenScope.CALL), "status.read")
        with pytest.raises(ActionDenied):
            harness.gateway.service.require_permitted(a_caller("agent:stranger", TokenScope.CALL), "status.read")


async def test_another_principals_approval_looks_missing(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        asked = await harness.call("fs.write", WRITE)
        approval = read_approval(harness.gateway.store, asked.approval_id or "")
        service = harness.gateway.service
        service.require_visible(a_caller("agent:bot", TokenScope.CALL), approval)
        service.require_visible(a_caller("user:operator", TokenScope.OPERATE), approval)
        with pytest.raises(UnknownApproval):
            service.require_visible(a_caller("agent:eve", TokenScope.CALL), approval)
