"""Journal: search, each entry in full, verification and export."""

import asyncio
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse

from palyra.clock import rfc3339
from palyra.ids import CallId, RunId
from palyra.journal.search import EventQuery, Found, search_events
from palyra.journal.verify import VerifyReport
from palyra.pipeline.store.run_tables import find_owners
from palyra.server.console.errors import Busy
from palyra.server.console.event_text import format_count
from palyra.server.console.limits import PAGE_ROWS, SEARCH_ROWS
from palyra.server.console.page import Download, Listing, Page, Section, Visit, Write
from palyra.server.console.services import Console
from palyra.store.event import Event
from palyra.store.port import NoSuchEvent

# Prefixes of kinds that a person chooses from; any other can be typed.
CONCEPTS = (
    *("approval.", "call.", "console.", "credential.", "daemon.", "egress.", "identity.", "journal.", "lease."),
    *("node.", "nodes.", "pairing.", "policy.", "run.", "skill.", "vault.", "worker."),
)


class VerifyBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a verification: it has no fields."""


async def show_journal(console: Console, visit: Visit) -> dict[str, Any]:
    found = await _search(console, visit)
    return {"events": found.events, "next": found.next, "concepts": CONCEPTS}


async def list_as_json(console: Console, visit: Visit) -> dict[str, Any]:
    found = await _search(console, visit)
    return {"events": [event_view(event) for event in found.events], "next": found.next}


async def _search(console: Console, visit: Visit) -> Found:
    run, call = visit.query("run"), visit.query("call")
    query = EventQuery(
        kind=visit.query("kind"),
        actor=visit.query("actor"),
        principal=visit.query("principal"),
        run=str(RunId.parse(run)) if run else "",
        call=str(CallId.parse(call)) if call else "",
        text=visit.query("text"),
        before=visit.number("before"),
    )
    return await asyncio.to_thread(search_events, console.store, query, limit=PAGE_ROWS, look_at=SEARCH_ROWS)


async def show_event(console: Console, visit: Visit) -> dict[str, Any]:
    raw = visit.path("seq")
    if not (raw.isascii() and raw.isdigit() and len(raw) < 16):
        raise NoSuchEvent("entries have numbers")
    found = await asyncio.to_thread(search_events, console.store, EventQuery(before=int(raw) + 1), limit=1, look_at=1)
    if not found.events:
        raise NoSuchEvent(f"there is no entry {raw}")
    event = found.events[0]
    owner = (await asyncio.to_thread(find_owners, console.store, [event.run])).get(event.run)
    return {
        "title": f"Entry {event.seq}: {event.kind}",
        "event": event,
        "payload": event.payload_value(),
        # A call that was refused early may name a run that never began, or another principal's.
        "in_run": owner is not None and event.principal in ("", owner),
    }


def event_view(event: Event) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "id": event.id,
        "time": rfc3339(event.time_ms),
        "kind": event.kind,
        "actor": event.actor,
        "principal": event.principal,
        "run": event.run,
        "call": event.call,
        "payload": event.payload_value(),
        "prev_hash": event.prev_hash.hex(),
        "hash": event.hash.hex(),
    }


async def verify_journal(console: Console, _visit: Visit, _body: VerifyBody) -> dict[str, Any]:
    """Verify every entry, the chain and the signatures, as ``palyra journal verify`` does."""
    if console.verifying.locked():
        raise Busy("the journal is being verified already")
    async with console.verifying:
        report = await asyncio.to_thread(console.journal.verify)
    return {
        **msgspec.to_builtins(report),
        "message": _in_words(report),
    }


def _in_words(report: VerifyReport) -> str:
    entries = format_count(report.events, "entry", "entries")
    if not report.checkpoints:
        return f"Sound: {entries}, none of them sealed by a signed checkpoint yet."
    sealed = f"{format_count(report.checkpoints, 'signed checkpoint')} up to entry {report.sealed_through:,}"
    return f"Sound: {entries}, {sealed}, {report.unsealed} not sealed yet."


async def export_journal(console: Console, visit: Visit) -> Response:
    """Export entries as lines of JSON that can be verified."""
    first, last = visit.number("first") or 1, visit.number("last")
    lines = await asyncio.to_thread(console.journal.export, first, last)
    return StreamingResponse(
        lines,
        media_type="application/jsonl",
        headers={"Content-Disposition": 'attachment; filename="palyra-journal.jsonl"', "Cache-Control": "no-store"},
    )


SECTION = Section(
    pages=(
        Page(path="/journal", template="journal.html", title="Journal", show=show_journal),
        Page(path="/journal/{seq}", template="event.html", title="Entry", above="/journal", show=show_event),
    ),
    listings=(Listing(path="/console/v1/journal", show=list_as_json),),
    writes=(Write(path="/console/v1/journal/verify", name="journal.verify", act=verify_journal, body=VerifyBody),),
    downloads=(Download(path="/console/v1/journal/export", name="journal.export", make=export_journal),),
)
