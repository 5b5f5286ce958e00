"""Performs the capabilities of a device, and turns every end into an outcome."""

import asyncio
import contextlib
import logging
import os
import platform
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from palyra.devicelink.limits import MAX_FAILURE_MESSAGE_CHARS
from palyra.errors import PalyraError
from palyra.nodes import limits
from palyra.nodes.agent import offered
from palyra.nodes.agent.messages import (
    BadCapabilityInput,
    CapabilityFailed,
    Dispatch,
    NotOffered,
    Outcome,
    UnsupportedHere,
)
from palyra.nodes.agent.settings import PREFIX, CommandPlan


def find_opener(configured: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command that opens a web address."""
    if configured:
        return configured
    name = "open" if sys.platform == "darwin" else "xdg-open"
    found = shutil.which(name)
    if found is None:
        raise UnsupportedHere(f"there is no {name} on this device")
    return (found,)


def find_notifier(configured: tuple[str, ...]) -> tuple[str, ...] | None:
    if configured:
        return configured
    found = shutil.which("notify-send")
    return None if found is None else (found, "--app-name=Palyra", "--")


async def run_desktop(argv: tuple[str, ...], *words: str) -> None:
    """Run a desktop program, with each word as one argument and without a shell."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise UnsupportedHere(f"{argv[0]} cannot be started: {error.strerror}") from error
    try:
        async with asyncio.timeout(limits.DESKTOP_SECONDS):
            status = await process.wait()
    except TimeoutError:
        # Some openers run as long as the program they opened. The address was delivered.
        return
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.shield(process.wait())
        raise
    if status != 0:
        raise CapabilityFailed(f"{argv[0]} ended with status {status}")


class Person(Protocol):
    """The person at the device."""

    async def allows(self, capability: str, shown_input: str) -> bool:
        """Ask the person. The answer is no if nobody is there. Cancelling withdraws the question."""

    def notify(self, title: str, text: str) -> bool:
        """Show a notification on the terminal. Return whether that was possible."""

    def tell(self, text: str) -> None:
        """Write a line to the host's log."""


class CommandRunner(Protocol):
    """Runs one command of the device's configuration in the sandbox."""

    async def run(
        self, plan: CommandPlan, words: tuple[str, ...], *, timeout_ms: int, max_output_bytes: int
    ) -> dict[str, Any]: ...


class Performer(Protocol):
    async def perform(self, dispatch: Dispatch, *, timeout_ms: int, max_result_bytes: int) -> Outcome: ...


def system_health(folder: Path, software_version: str) -> dict[str, Any]:
    """Measure the device. Values that the system does not provide are absent."""
    health: dict[str, Any] = {
        "platform": platform_name(),
        "software_version": software_version,
        "cpus": os.cpu_count() or 1,
        "time_ms": time.time_ns() // 1_000_000,
    }
    with contextlib.suppress(OSError):
        health["load"] = [round(each, 2) for each in os.getloadavg()]
    with contextlib.suppress(OSError):
        disk = shutil.disk_usage(folder)
        health["disk"] = {"total_bytes": disk.total, "free_bytes": disk.free}
    with contextlib.suppress(OSError, ValueError, IndexError):
        health["uptime_seconds"] = int(float(Path("/proc/uptime").read_text().split()[0]))
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        health["memory"] = {
            "total_bytes": _kib(lines["MemTotal"]),
            "available_bytes": _kib(lines["MemAvailable"]),
        }
    return health


def platform_name() -> str:
    return f"{platform.system().lower()}-{platform.machine()}"


def _kib(text: str) -> int:
    return int(text.split()[0]) * 1024


_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False, kw_only=True)
class Capabilities:
    """``open_url_command`` and ``notify_command`` are argv that the text is appended to. Empty means the default."""

    commands: Mapping[str, CommandPlan]
    runner: CommandRunner
    person: Person
    folder: Path
    software_version: str
    open_url_command: tuple[str, ...] = ()
    notify_command: tuple[str, ...] = ()

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
                return await asyncio.to_thread(system_health, self.folder, self.software_version)
            case offered.ECHO:
                return {"text": offered.read_text(given, "text", offered.MAX_ECHO_CHARS)}
            case offered.OPEN_URL:
                await run_desktop(find_opener(self.open_url_command), offered.read_web_address(given))
                return {"opened": True}
            case offered.NOTIFY:
                return await self._notify(given)
        plan = self.commands.get(capability.removeprefix(PREFIX)) if capability.startswith(PREFIX) else None
        if plan is None:
            raise NotOffered("this device does not offer that capability")
        words = plan.words(given)
        room = offered.compute_output_limit(most)
        return await self.runner.run(plan, words, timeout_ms=timeout_ms, max_output_bytes=room)

    async def _notify(self, given: Mapping[str, Any]) -> dict[str, Any]:
        text = offered.read_text(given, "text", limits.MAX_NOTIFICATION_CHARS, optional="title")
        title = "Palyra"
        if "title" in given:
            title = offered.read_text({"title": given["title"]}, "title", offered.MAX_TITLE_CHARS)
        argv = find_notifier(self.notify_command)
        if argv is not None:
            try:
                await run_desktop(argv, title, text)
                return {"shown": "desktop"}
            except (CapabilityFailed, UnsupportedHere):
                # Without a desktop session the terminal shows it.
                if self.notify_command:
                    raise
        if self.person.notify(title, text):
            return {"shown": "terminal"}
        raise UnsupportedHere("this device has neither a desktop nor a terminal to show it on")
