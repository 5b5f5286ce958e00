"""Egress: the hosts that calls reached, and refused connections."""

import asyncio
from collections import Counter
from typing import Any

import msgspec

from palyra.journal.search import EventQuery, Found, search_events
from palyra.server.console.event_text import describe_event
from palyra.server.console.limits import PAGE_ROWS
from palyra.server.console.page import Listing, Page, Section, Visit
from palyra.server.console.services import Console
from palyra.store.event import Event

# Entries that the table of hosts counts; older ones are in the journal.
COUNTED = 2_000
# Calls that were refused before they started because of their host.
_NOT_BEGUN = EventQuery(kind="call.refused", text='"egress.')


class HostRow(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    reached: int
    refused: int
    up: int
    down: int
    newest_ms: int


async def show_egress(console: Console, visit: Visit) -> dict[str, Any]:
    before = visit.number("before")
    counted, refused = await asyncio.gather(
        asyncio.to_thread(_hosts, console), asyncio.to_thread(_refusals, console, before)
    )
    return {
        "hosts": counted,
        "refused": refused.events,
        "next": refused.next,
        "rules": console.egress_rules,
        "request_rules": console.request_rules,
        "where_to": host_of,
        "why_not": why_not,
    }


async def list_as_json(console: Console, _visit: Visit) -> dict[str, Any]:
    hosts = await asyncio.to_thread(_hosts, console)
    requests = [{"hosts": hosts, "requests": requests} for hosts, requests in console.request_rules]
    return {"hosts": msgspec.to_builtins(hosts), "allowed": console.egress_rules, "requests": requests}


def _refusals(console: Console, before: int | None) -> Found:
    """Return refused connections, and calls that were refused before they started because of their host."""
    both = [
        search_events(console.store, query, limit=PAGE_ROWS, look_at=look_at)
        for query, look_at in (
            (EventQuery(kind="egress.refused", before=before), PAGE_ROWS),
            (msgspec.structs.replace(_NOT_BEGUN, before=before), COUNTED),
        )
    ]
    # Below this number one of the two was not read: the next page begins there.
    lowest = max((found.next for found in both if found.next is not None), default=None)
    events = [event for found in both for event in found.events if lowest is None or event.seq >= lowest]
    return Found(events=sorted(events, key=lambda event: event.seq, reverse=True), next=lowest)


def _hosts(console: Console) -> list[HostRow]:
    reached: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    up: Counter[str] = Counter()
    down: Counter[str] = Counter()
    newest: dict[str, int] = {}
    for query, counter in (
        (EventQuery(kind="egress.connected"), reached),
        (EventQuery(kind="egress.refused"), refused),
        (_NOT_BEGUN, refused),
        (EventQuery(kind="egress.closed"), None),
    ):
        for event in search_events(console.store, query, limit=COUNTED, look_at=COUNTED).events:
            host = host_of(event)
            newest[host] = max(newest.get(host, 0), event.time_ms)
            if counter is not None:
                counter[host] += 1
            else:
                payload = event.payload_value()
                up[host] += int(payload.get("up", 0))
                down[host] += int(payload.get("down", 0))
    rows = [
        HostRow(
            host=host,
            reached=reached[host],
            refused=refused[host],
            up=up[host],
            down=down[host],
            newest_ms=newest[host],
        )
        for host in newest
    ]
    return sorted(rows, key=lambda row: row.newest_ms, reverse=True)


def host_of(event: Event) -> str:
    payload = event.payload_value()
    if not isinstance(payload, dict):
        return "unknown"
    match payload.get("target"), payload.get("refusal"):
        case ({"host": str(host), "port": int(port)}, _) | (_, {"host": str(host), "port": int(port)}):
            return f"{host}:{port}" if port else host or "unknown"
        case (str(target), _):
            return target
        case _:
            return _named_in(payload.get("error"))


def _named_in(error: Any) -> str:
    match error:
        case {"details": {"host": str(host), "port": int(port)}}:
            return f"{host}:{port}"
        case {"details": {"host": str(host)}}:
            return host
        case _:
            return "unknown"


def why_not(event: Event) -> tuple[str, str]:
    match event.payload_value():
        case {"error": {"message": str(message), "code": str(code)}}:
            return message, code
        case {"refusal": {"code": str(code), "detail": str(detail)}}:
            return detail, code
        case _:
            return describe_event(event), ""


SECTION = Section(
    pages=(
        Page(
            path="/egress", template="egress.html", title="Egress", show=show_egress, live=("egress.", "call.refused")
        ),
    ),
    listings=(Listing(path="/console/v1/egress", show=list_as_json),),
)
