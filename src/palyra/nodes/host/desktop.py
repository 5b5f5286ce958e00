"""Programs of the person's desktop: what opens a web address, what shows a notification."""

import asyncio
import contextlib
import shutil
import sys

from palyra.nodes.host import limits
from palyra.nodes.host.errors import CapabilityFailed, UnsupportedHere


def opener(configured: tuple[str, ...]) -> tuple[str, ...]:
    """The command that a web address is handed to."""
    if configured:
        return configured
    name = "open" if sys.platform == "darwin" else "xdg-open"
    found = shutil.which(name)
    if found is None:
        raise UnsupportedHere(f"there is no {name} on this device")
    return (found,)


def notifier(configured: tuple[str, ...]) -> tuple[str, ...] | None:
    if configured:
        return configured
    found = shutil.which("notify-send")
    return None if found is None else (found, "--app-name=Palyra", "--")


async def run_desktop(argv: tuple[str, ...], *words: str) -> None:
    """The words are arguments of their own, and no shell reads them."""
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
        # Some openers stay as long as what they opened: it was handed over.
        return
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.shield(process.wait())
        raise
    if status != 0:
        raise CapabilityFailed(f"{argv[0]} ended with status {status}")
