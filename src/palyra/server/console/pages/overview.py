"""Overview: running, waiting and refused calls, problems and budgets. Doctor: the last examination of this machine."""

import asyncio
from typing import Any

import msgspec

from palyra.clock import rfc3339
from palyra.ids import instant_of, ulid_at
from palyra.journal.search import EventQuery, search_events
from palyra.pipeline.domain.approval import Approval, ApprovalState
from palyra.pipeline.domain.call import CallRecord, CallState
from palyra.pipeline.store.approval_tables import count_pending_by_principal, list_approvals
from palyra.pipeline.store.call_tables import count_by_time, list_running_calls, list_runs, list_unusual_calls
from palyra.pipeline.store.result_tables import StoredData, read_stored_data
from palyra.pipeline.store.run_tables import Run
from palyra.server.console.errors import Busy
from palyra.server.console.page import Listing, Page, Section, Visit, Write
from palyra.server.console.services import Console
from palyra.server.console.svg import Bar
from palyra.store.event import Event
from palyra.store.port import Store


class ExamineBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of an examination: it has no fields."""


async def show_doctor(console: Console, _visit: Visit) -> dict[str, Any]:
    examined = console.examined
    return {
        "at_ms": None if examined is None else examined[0],
        "checks": None if examined is None else examined[1],
        "busy": console.examining.locked(),
        "status": await asyncio.to_thread(console.service.status),
        "missing": console.service.ready(),
    }


async def show_doctor_as_json(console: Console, _visit: Visit) -> dict[str, Any]:
    if console.examined is None:
        return {"examined_at": None, "checks": []}
    at_ms, checks = console.examined
    return {"examined_at": rfc3339(at_ms), "checks": checks}


async def examine_machine(console: Console, visit: Visit, _body: ExamineBody) -> dict[str, Any]:
    if console.examining.locked():
        raise Busy("the machine is being examined already")
    async with console.examining:
        checks = await asyncio.to_thread(console.examine_machine)
        console.examined = (console.service.clock.now_ms(), checks)
    return await show_doctor_as_json(console, visit)


DOCTOR_SECTION = Section(
    pages=(Page(path="/doctor", template="doctor.html", title="Doctor", show=show_doctor, live=("console.action_",)),),
    listings=(Listing(path="/console/v1/doctor", show=show_doctor_as_json),),
    writes=(Write(path="/console/v1/doctor/examine", name="doctor.examine", act=examine_machine, body=ExamineBody),),
)


ROWS = 6
# Principals whose stored results are shown by name.
SHOWN_HOLDERS = 5
GIST_CHARS = 120
HOURS = 24
MS_PER_HOUR = 3_600_000
# Calls that the chart counts at most: more of them do not change the picture of a busy day.
COUNTED = 50_000
REFUSED = (CallState.DENIED, CallState.REFUSED)
# Kinds of events that an operator wants to see even if no call failed.
TROUBLE = (
    "call.planted",
    *("egress.refused", "worker.quarantined", "worker.violation_reported", "policy.rejected", "vault.use_denied"),
    *("credential.rejected", "call.abandoned", "nodes.state_recovered", "skill.failed", "console.action_failed"),
    *("console.request_refused", "browser.profiles_folder_rolled_back", "browser.handoff_requested"),
)
_GROUP_OF = {
    CallState.SUCCEEDED: "succeeded",
    CallState.RUNNING: "succeeded",
    CallState.NEEDS_APPROVAL: "waiting",
}


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    running: list[CallRecord]
    waiting: list[Approval]
    refused: list[CallRecord]
    trouble: list[Event]
    runs: list[Run]
    hours: list[Bar]
    stored: StoredData

    @property
    def calls_today(self) -> int:
        return sum(bar.total for bar in self.hours)

    @property
    def refused_today(self) -> int:
        return sum(amount for bar in self.hours for name, amount in bar.parts if name == "refused")


async def show_overview(console: Console, _visit: Visit) -> dict[str, Any]:
    now_ms = console.service.clock.now_ms()
    seen, status = await asyncio.gather(
        asyncio.to_thread(_look, console, now_ms), asyncio.to_thread(console.service.status)
    )
    missing = console.service.ready()
    return {
        "seen": seen,
        "status": status,
        "missing": missing,
        "problems": problems_of(status, missing),
        "gist_of": gist_of,
        "shown_holders": SHOWN_HOLDERS,
    }


async def show_as_json(console: Console, visit: Visit) -> dict[str, Any]:
    shown = await show_overview(console, visit)
    seen: Overview = shown["seen"]
    return {
        "status": shown["status"],
        "problems": [each.text for each in shown["problems"]],
        "running": [record.call_id for record in seen.running],
        "waiting": [approval.id for approval in seen.waiting],
        "calls_today": seen.calls_today,
        "refused_today": seen.refused_today,
        "stored": msgspec.to_builtins(seen.stored),
    }


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem as a sentence, and the page with the details."""

    text: str
    href: str = ""
    where: str = ""


def problems_of(status: dict[str, Any], missing: list[str]) -> list[Problem]:
    found = [Problem(text=f"Calls are refused: {each}.", href="/doctor", where="Doctor") for each in missing]
    rejected = status["policy"]["rejected"]
    if rejected is not None:
        first = rejected["errors"][0].splitlines()[0]
        text = f"The newest policies were refused, the old ones are in force: {first}."
        found.append(Problem(text=text, href="/policy", where="Policy"))
    if status.get("browser", {}).get("profiles_rolled_back"):
        text = "Nobody can use the browser profiles: they are an older copy of what was here."
        found.append(Problem(text=text, href="/browser", where="Browser"))
    return found


def gist_of(approval: Approval) -> str:
    """Describe a waiting call in a few words: the program that it runs, or its first resource."""
    command, arguments = approval.arguments.get("command"), approval.arguments.get("args")
    if isinstance(command, str):
        words = [command, *(arguments if isinstance(arguments, list) else ())]
        return _cut(" ".join(str(word) for word in words))
    touched = [each for key in ("paths", "hosts", "secrets", "devices") for each in approval.touches.get(key, ())]
    return _cut(str(touched[0])) if touched else ""


def _cut(text: str) -> str:
    return text if len(text) <= GIST_CHARS else f"{text[: GIST_CHARS - 1]}…"


def _look(console: Console, now_ms: int) -> Overview:
    store = console.store
    since = now_ms - (HOURS - 1) * MS_PER_HOUR
    first_hour = since - since % MS_PER_HOUR
    return Overview(
        running=list_running_calls(store, limit=ROWS),
        waiting=_list_longest_waiting(store),
        refused=list_unusual_calls(store, REFUSED, limit=ROWS),
        trouble=_trouble(console),
        runs=list_runs(store, limit=ROWS),
        stored=read_stored_data(store),
        hours=hours_of(count_by_time(store, ulid_at(first_hour), limit=COUNTED), first_hour),
    )


def _list_longest_waiting(store: Store) -> list[Approval]:
    """Return the oldest requests of each principal, as many of each, so that none hides another's."""
    principals = list(count_pending_by_principal(store))[:ROWS]
    longest = [
        list_approvals(
            store, ApprovalState.PENDING, principal=each, oldest_first=True, limit=max(1, ROWS // len(principals))
        )
        for each in principals
    ]
    return [approval for found in longest for approval in found]


def hours_of(counts: list[tuple[str, CallState, int]], first_hour: int) -> list[Bar]:
    counted = [{"succeeded": 0, "waiting": 0, "refused": 0} for _ in range(HOURS)]
    for stretch, state, count in counts:
        # The first stretch may begin before the first hour.
        hour = max(0, instant_of(stretch) - first_hour) // MS_PER_HOUR
        if hour < HOURS:
            counted[hour][_GROUP_OF.get(state, "refused")] += count
    return [
        Bar(label=f"{(first_hour // MS_PER_HOUR + number) % 24:02d}:00 UTC", parts=tuple(amounts.items()))
        for number, amounts in enumerate(counted)
    ]


def _trouble(console: Console) -> list[Event]:
    found = [
        event
        for kind in TROUBLE
        for event in search_events(console.store, EventQuery(kind=kind), limit=ROWS, look_at=ROWS).events
    ]
    return sorted(found, key=lambda event: event.seq, reverse=True)[:ROWS]


SECTION = Section(
    pages=(
        Page(
            path="/",
            template="overview.html",
            title="Overview",
            show=show_overview,
            live=(
                *("call.", "approval.", "run.", "policy.", "egress.", "worker.", "node", "vault.", "browser."),
                *("pairing.", "skill."),
            ),
        ),
    ),
    listings=(Listing(path="/console/v1/overview", show=show_as_json),),
)
