"""Policy: the policies in force, the explanation of one decision, and a replay of recorded decisions."""

import asyncio
from collections.abc import Iterator
from typing import Any

from palyra.errors import PalyraError
from palyra.ids import Principal
from palyra.journal.search import EventQuery, search_events
from palyra.pipeline.domain.call import build_tool_entity
from palyra.pipeline.domain.spec import AccessedResources
from palyra.pipeline.intake import accept_arguments
from palyra.policy.dry_run import RecordedDecision, VerdictChanged, replay
from palyra.policy.explain import Explanation, describe_explanation
from palyra.policy.request import PolicyRequest, tool_request
from palyra.server.console.page import Listing, Page, Section, Visit
from palyra.server.console.services import Console, find_policy_text

# Recorded decisions of a replay: by default as many as a page can wait for, and the most that a person may ask for.
REPLAYED = 100
MOST_REPLAYED = 2_000


async def show_policy(console: Console, visit: Visit) -> dict[str, Any]:
    query = {name: visit.query(name) for name in ("principal", "tool", "channel", "approved", "arguments")}
    explained: Explanation | None = None
    refused: PalyraError | None = None
    if query["principal"] and query["tool"]:
        try:
            explained = await asyncio.to_thread(lambda: console.policy.engine.explain(_request(console, query)))
        except PalyraError as error:
            refused = error
    return {
        "overview": console.policy.status(),
        "policies": _texts(console),
        "tools": [str(spec.name) for spec in console.service.broker.catalog.specs()],
        "asked": query,
        "explained": explained,
        "in_words": "" if explained is None else describe_explanation(explained),
        "refused": refused,
    }


async def show_replay(console: Console, visit: Visit) -> dict[str, Any]:
    most = min(visit.number("calls") or REPLAYED, MOST_REPLAYED)
    found = await asyncio.to_thread(lambda: list(_recorded(console, most)))
    findings = await asyncio.to_thread(lambda: list(replay(found, console.policy.engine)))
    return {
        "replayed": len(found),
        "more": MOST_REPLAYED if len(found) == most < MOST_REPLAYED else None,
        "changed": [each for each in findings if isinstance(each, VerdictChanged)],
        "others": [each for each in findings if not isinstance(each, VerdictChanged)],
        "overview": console.policy.status(),
    }


async def show_as_json(console: Console, _visit: Visit) -> dict[str, Any]:
    return {**console.policy.status(), "policies": _texts(console)}


def _texts(console: Console) -> list[dict[str, str] | None]:
    return [find_policy_text(console.policy, name) for name in console.policy.engine.policies]


def _request(console: Console, query: dict[str, str]) -> PolicyRequest:
    broker = console.service.broker
    directory, entry = broker.config.directory, broker.catalog.entry(query["tool"])
    spec = entry.spec
    accepted = accept_arguments(spec, entry.input_check, query["arguments"]) if query["arguments"] else None
    touches = AccessedResources() if accepted is None else spec.touches(accepted.value)
    principal = Principal.parse(query["principal"])
    return tool_request(
        directory.principal(principal),
        build_tool_entity(directory, spec),
        directory.channel(query["channel"] or "api"),
        approved=query["approved"] == "yes",
        workspace=broker.config.workspaces.of(principal),
        run="",
        argument_bytes=0 if accepted is None else len(accepted.canonical),
        paths=touches.paths,
        hosts=touches.hosts,
        skill=None if spec.skill is None else spec.skill.entity,
    )


def _recorded(console: Console, most: int) -> Iterator[RecordedDecision]:
    """Return the newest decisions, the oldest of them first."""
    query = EventQuery(kind="call.decided")
    found = search_events(console.store, query, limit=most, look_at=most * 10)
    for event in reversed(found.events):
        payload = event.payload_value()
        yield RecordedDecision(
            seq=event.seq,
            call_id=event.call,
            outcome=str(payload.get("outcome", "")),
            policies=tuple(map(str, payload.get("policies") or ())),
            request=payload.get("policy_request"),
        )


SECTION = Section(
    pages=(
        Page(path="/policy", template="policy.html", title="Policy", show=show_policy, live=("policy.",)),
        Page(path="/policy/replay", template="replay.html", title="Replay", above="/policy", show=show_replay),
    ),
    listings=(Listing(path="/console/v1/policy", show=show_as_json),),
)
