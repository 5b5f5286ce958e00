"""Does what the device offers, and turns every ending into an outcome."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palyra.errors import PalyraError
from palyra.nodes.host import limits, offered
from palyra.nodes.host.command_plan import PREFIX, CommandPlan
from palyra.nodes.host.desktop import notifier, opener, run_desktop
from palyra.nodes.host.errors import BadCapabilityInput, CapabilityFailed, NotOffered, UnsupportedHere
from palyra.nodes.host.messages import Dispatch, Outcome
from palyra.nodes.host.ports import CommandRunner, Person
from palyra.nodes.host.system_health import system_health
from palyra.nodes.rpc_limits import MAX_FAILURE_MESSAGE_CHARS

_log = logging.getLogger(__name__)


class Capabilities:
    """``open_url_command`` and ``notify_command`` are argv that the text is appended to; empty means the desktop's."""

    def __init__(
        self,
        *,
        commands: Mapping[str, CommandPlan],
        runner: CommandRunner,
        person: Person,
        folder: Path,
        software_version: str,
        open_url_command: tuple[str, ...] = (),
        notify_command: tuple[str, ...] = (),
    ) -> None:
        self._commands = dict(commands)
        self._runner = runner
        self._person = person
        self._folder = folder
        self._version = software_version
        self._open_url_command = open_url_command
        self._notify_command = notify_command

    async def perform(self, dispatch: Dispatch, *, timeout_ms: int, max_result_bytes: int) -> Outcome:
        try:
            given = offered.read_input(dispatch)
            result = await self._do(dispatch.capability, given, timeout_ms, max_result_bytes)
            return Outcome.succeeded(offered.encode_output(result, max_result_bytes))
        except PalyraError as error:
            return Outcome.failed(error.code, error.message[:MAX_FAILURE_MESSAGE_CHARS])
        except Exception:
            _log.exception("%s failed", dispatch.capability)
            failed = CapabilityFailed("the device met a fault of its own")
            return Outcome.failed(failed.code, failed.message)

    async def _do(self, capability: str, given: Mapping[str, Any], timeout_ms: int, most: int) -> dict[str, Any]:
        match capability:
            case offered.HEALTH:
                if given:
                    raise BadCapabilityInput("this takes nothing")
                return await asyncio.to_thread(system_health, self._folder, self._version)
            case offered.ECHO:
                return {"text": offered.text_of(given, "text", offered.MAX_ECHO_CHARS)}
            case offered.OPEN_URL:
                await run_desktop(opener(self._open_url_command), offered.web_address(given))
                return {"opened": True}
            case offered.NOTIFY:
                return await self._notify(given)
        plan = self._commands.get(capability.removeprefix(PREFIX)) if capability.startswith(PREFIX) else None
        if plan is None:
            raise NotOffered("this device does not offer that capability")
        words = plan.words(given)
        room = offered.room_for_output(most)
        return await self._runner.run(plan, words, timeout_ms=timeout_ms, max_output_bytes=room)

    async def _notify(self, given: Mapping[str, Any]) -> dict[str, Any]:
        text = offered.text_of(given, "text", limits.MAX_NOTIFICATION_CHARS, optional="title")
        title = "Palyra"
        if "title" in given:
            title = offered.text_of({"title": given["title"]}, "title", offered.MAX_TITLE_CHARS)
        argv = notifier(self._notify_command)
        if argv is not None:
            try:
                await run_desktop(argv, title, text)
                return {"shown": "desktop"}
            except (CapabilityFailed, UnsupportedHere):
                # No desktop session: the terminal is the next best place.
                if self._notify_command:
                    raise
        if self._person.notify(title, text):
            return {"shown": "terminal"}
        raise UnsupportedHere("this device has neither a desktop nor a terminal to show it on")
