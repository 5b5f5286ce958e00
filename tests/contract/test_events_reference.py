"""docs/reference/events.md lists every kind of event that the source appends, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from fakes.fleet_peers import EGRESS, OTHER, POLICY, WORKER, FleetPeers, numbered
from fakes.gateway_harness import open_harness
from fakes.journal_harness import StillClock
from fakes.memory_fleet import MemoryFleet
from palyra.browser.domain import session_api
from palyra.egress.domain.events import EgressEvent
from palyra.executors.browser.session_supervisor import RECORDED as BROWSER_TELLS
from palyra.fleet.domain import commands
from palyra.fleet.domain.manager import WorkerFleetManager
from palyra.nodes.domain.records import KIND_OF as PAIRINGS
from palyra.pipeline.domain.approval import ApprovalEvent, ApprovalState
from palyra.skills.registry.lifecycle import KIND_OF

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "reference" / "events.md").read_text(encoding="utf-8")
KIND = re.compile(r"[a-z_]+\.[a-z_]+")
# Functions that write an event and take its kind as an argument.
WRITERS = {
    *("NewEvent", "note_pairing", "_note_code", "_append", "_record", "_event", "build_call_event"),
    *("_put", "_append_event", "note_call", "note_worker", "note_lease", "end_lease"),
    # Of the browser.
    *("record", "_record_profile"),
}
# Concepts that have events: `policy.swapped` is one, `policy.dir` is a setting.
CONCEPTS = (
    *("call.", "approval.", "run.", "credential.", "policy.", "daemon.", "vault.", "egress.", "skill."),
    *("channel.", "identity.", "worker.", "lease.", "pairing.", "nodes.", "node.", "console.", "state.", "browser."),
    *("mcp.", "journal.", "results."),
)


def documented() -> dict[str, set[str]]:
    """Kinds, each with the payload keys its row names."""
    rows = re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \|(.*)\|$", TEXT, re.MULTILINE)
    return {kind: set(re.findall(r"`([a-z_0-9]+)`", cells.rpartition("|")[2])) for kind, cells in rows}


def _strings(node: ast.expr) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def _name(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def appended() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "src" / "palyra").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _name(node.func) in WRITERS:
                values = [*node.args, *(word.value for word in node.keywords if word.arg == "kind")]
                found |= {text for value in values for text in _strings(value) if KIND.fullmatch(text)}
            # A kind chosen beforehand: kind = "a.b" if … else "c.d".
            if isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == "kind" for target in node.targets
            ):
                found |= {text for text in _strings(node.value) if KIND.fullmatch(text)}
    return {kind for kind in found if kind.startswith(CONCEPTS)}


def decided() -> set[str]:
    """The kinds named after the state a decision leads to."""
    decisions = {ApprovalEvent.APPROVE, ApprovalEvent.DENY, ApprovalEvent.WITHDRAW}
    from palyra.pipeline.domain.approval import TRANSITIONS

    states: set[ApprovalState] = {after for (_, event), after in TRANSITIONS.items() if event in decisions}
    return {f"approval.{state.value}" for state in states}


def tagged() -> set[str]:
    """The kinds of what happens on the way out, which are the tags of its values."""
    return {str(each.__struct_config__.tag) for each in get_args(EgressEvent)}


@pytest.mark.promise("P-documented")
def test_the_page_lists_what_the_source_appends() -> None:
    of_browser = BROWSER_TELLS | {session_api.OPENED, session_api.CLOSED}
    chosen = set(KIND_OF.values()) | set(PAIRINGS.values())
    assert documented().keys() == appended() | decided() | chosen | tagged() | of_browser


@pytest.mark.promise("P-documented")
async def test_payloads_have_the_keys_that_the_page_names(tmp_path: Path) -> None:
    optional = {"obligations", "missing_grant"}
    pages = documented()
    approvals = set(re.findall(r"`([a-z_]+)`", TEXT.partition("All have the payload ")[2].partition(".\n")[0]))
    async with open_harness(tmp_path) as harness:
        await harness.call("echo", {"text": "x"})
        await harness.call("echo", {})
        asked = await harness.call("fs.write", {"path": "a", "content": "x"})
        await harness.approve(asked.approval_id)
        await harness.call("fs.write", {"path": "a", "content": "x"})
        (tmp_path / "policies").mkdir()
        (tmp_path / "policies" / "a.cedar").write_text('@id("a")\nforbid (principal, action, resource == Tool::"x");\n')
        await harness.gateway.policy.reload()
        (tmp_path / "policies" / "b.cedar").write_text("nonsense")
        await harness.gateway.policy.reload()
        seen = harness.events()
    kinds = {kind for kind, _ in seen}
    assert {"call.refused", "call.finished", "approval.consumed", "policy.swapped", "policy.rejected"} <= kinds
    for kind, payload in seen:
        expected = approvals if kind.startswith("approval.") else pages[kind]
        assert expected - optional <= payload.keys() <= expected, kind


async def test_payloads_of_the_fleet_have_the_keys_that_the_page_names() -> None:
    peers, clock = FleetPeers(), StillClock()
    ledger, pages = MemoryFleet(clock, WorkerFleetManager(POLICY)), documented()

    async def decide(*sent: commands.FleetCommand) -> None:
        await ledger.decide_all(sent)

    worker = await peers.ready(ledger, now_ms=clock.now)
    settled, cancelled = [await peers.leased(ledger, now_ms=clock.now, idempotent=True) for _ in range(2)]
    message = peers.settle(settled, clock.now, worker.session)
    again = peers.settle(settled, clock.now, worker.session, output_bytes=1)
    await decide(message, again, commands.CancelLease(actor="a", lease_id=cancelled.lease_id))
    await decide(commands.EndSession(actor="a", worker_id=WORKER, session=worker.session))
    clock.now += POLICY.heartbeat_timeout_ms
    await decide(commands.DeclareLost(actor="a", worker_id=WORKER))
    retry = commands.RetryLease(actor="a", lease_id=cancelled.lease_id, grant_id=peers.next_id(), valid_ms=1)
    await decide(retry, peers.lease(OTHER, peers.grant(0)), peers.open_session(boot="boot-2"))
    other = await peers.ready(ledger, OTHER, now_ms=clock.now)
    declined = await peers.leased(ledger, OTHER, now_ms=clock.now)
    await decide(
        commands.DeclineLease(
            actor="a", worker_id=OTHER, lease_id=declined.lease_id, session=other.session, fence=declined.fence
        ),
        peers.lease(OTHER, peers.grant(0)),
        commands.ReportViolation(actor="a", worker_id=OTHER, egress_id="x", violation="v"),
        *(kind(actor="a", worker_id=OTHER) for kind in (commands.DrainWorker, commands.ResumeWorker)),
        commands.ReportViolation(actor="a", worker_id=OTHER, egress_id=EGRESS, violation="v"),
        commands.ReleaseWorker(actor="a", worker_id=OTHER),
    )
    third = await peers.ready(ledger, numbered(3), now_ms=clock.now)
    late = await peers.leased(ledger, third.worker_id, now_ms=clock.now, timeout_ms=1)
    clock.now = late.due_ms(POLICY)
    await decide(commands.ExpireLease(actor="a", lease_id=late.lease_id))
    await decide(peers.disclaim(late, third, clock.now))
    clock.now += POLICY.attestation_interval_ms
    await decide(commands.LapseAttestation(actor="a", worker_id=third.worker_id))
    await decide(commands.DeclareLost(actor="a", worker_id=third.worker_id))
    fourth = await ledger.decide(peers.open_session(numbered(4)))
    assert fourth.worker is not None
    await decide(peers.present(fourth.worker, clock.now, wit_abi_version="x"))
    await decide(commands.RemoveWorker(actor="a", worker_id=WORKER))
    seen = ledger.events()
    assert {kind for kind, _ in seen} == {kind for kind in pages if kind.startswith(("worker.", "lease."))}
    for kind, payload in seen:
        assert payload.keys() == pages[kind], kind
