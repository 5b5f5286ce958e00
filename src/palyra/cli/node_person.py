"""The person at a device: asked, notified and told on the terminal that the node host runs on."""

import asyncio
import os
import sys
import termios
from typing import IO, Any, Final

from palyra.cli.output import Output, one_line
from palyra.cli.terminal import shown, shown_block

# A yes or a no; whatever is longer is neither.
MAX_ANSWER_BYTES: Final = 64


class TerminalPerson:
    """One question at a time. What was typed before a question is shown does not answer it."""

    def __init__(self, output: Output, *, keyboard: IO[Any] | None = None, screen: IO[str] | None = None) -> None:
        """Standard input and standard error where nothing else is given."""
        self._output = output
        self._keyboard = keyboard or sys.stdin
        self._screen = screen or sys.stderr
        self._turn = asyncio.Lock()

    def tell(self, text: str) -> None:
        self._output.note(shown_block(text))

    def notify(self, title: str, text: str) -> bool:
        if not self._screen.isatty():
            return False
        # The bell is ours; everything in the text that could steer the terminal is spelled out.
        self._screen.write("\a")
        self._output.note(f"{shown(title)}: {shown(text)}")
        return True

    async def allows(self, capability: str, shown_input: str) -> bool:
        async with self._turn:
            terminal = self._terminal()
            if terminal is None:
                self.tell(f"{capability} was asked for, and nobody is at a terminal to allow it: rejected")
                return False
            termios.tcflush(terminal, termios.TCIFLUSH)
            asked = f"The daemon asks this device for {one_line(capability)}\n  with {one_line(shown_input)}"
            self._output.note(f"{asked}\nAllow it? [y/N]")
            answer = await _line(terminal)
            allowed = answer.strip().lower() in (b"y", b"yes")
            self._output.note("allowed" if allowed else "not allowed")
            return allowed

    def _terminal(self) -> int | None:
        """Where a person answers, if both what they type on and what they read are a terminal."""
        try:
            source = self._keyboard.fileno()
        except (AttributeError, OSError, ValueError):
            return None
        return source if os.isatty(source) and self._screen.isatty() else None


async def _line(terminal: int) -> bytes:
    """What is typed up to the end of the line; nothing where the terminal goes away. Can be cancelled."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bytes] = loop.create_future()
    typed = bytearray()

    def ready() -> None:
        try:
            piece = os.read(terminal, MAX_ANSWER_BYTES)
        except OSError:
            piece = b""
        typed.extend(piece)
        if not done.done() and (not piece or b"\n" in typed or len(typed) > MAX_ANSWER_BYTES):
            whole = typed.partition(b"\n")[0] if piece and len(typed) <= MAX_ANSWER_BYTES else b""
            done.set_result(bytes(whole))

    loop.add_reader(terminal, ready)
    try:
        return await done
    finally:
        loop.remove_reader(terminal)
