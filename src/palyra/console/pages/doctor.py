"""Doctor: what this machine can enforce, as it was last examined."""

import asyncio
from typing import Any

import msgspec

from palyra.clock import rfc3339
from palyra.console.console import Console
from palyra.console.errors import Busy
from palyra.console.page import Listing, Page, Section, Write
from palyra.console.visit import Visit


class ExamineBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything is looked at: there is nothing to choose."""


async def show_doctor(console: Console, _visit: Visit) -> dict[str, Any]:
    examined = console.examined
    return {
        "at_ms": None if examined is None else examined[0],
        "report": None if examined is None else examined[1],
        "busy": console.examining.locked(),
        "status": await asyncio.to_thread(console.service.status),
        "missing": console.service.ready(),
    }


async def show_as_json(console: Console, _visit: Visit) -> dict[str, Any]:
    if console.examined is None:
        return {"examined_at": None, "checks": []}
    at_ms, report = console.examined
    return {"examined_at": rfc3339(at_ms), "checks": msgspec.to_builtins(report.checks)}


async def examine_machine(console: Console, visit: Visit, _body: ExamineBody) -> dict[str, Any]:
    if console.examining.locked():
        raise Busy("the machine is being examined already")
    async with console.examining:
        report = await asyncio.to_thread(console.machine.examine)
        console.examined = (console.service.clock.now_ms(), report)
    return await show_as_json(console, visit)


SECTION = Section(
    pages=(
        Page(
            path="/doctor",
            template="doctor.html",
            title="Doctor",
            menu="Doctor",
            icon="doctor",
            show=show_doctor,
            live=("console.action_",),
        ),
    ),
    listings=(Listing(path="/console/v1/doctor", show=show_as_json),),
    writes=(Write(path="/console/v1/doctor/examine", name="doctor.examine", act=examine_machine, body=ExamineBody),),
)
