"""The person at a device, on a real terminal."""

import asyncio
import io
import os
import pty
import select
from collections.abc import Iterator
from typing import IO

import pytest

from palyra.cli.commands.node import TerminalPerson
from palyra.cli.terminal import Output


class Terminal:
    """``hand`` is the person's side of it."""

    def __init__(self, keyboard: IO[bytes], screen: IO[str], hand: int) -> None:
        self.hand = hand
        self.person = TerminalPerson(Output(stderr=screen), keyboard=keyboard, screen=screen)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    hand, program = pty.openpty()
    with open(program, "r+b", buffering=0) as keyboard, os.fdopen(os.dup(program), "w") as screen:
        yield Terminal(keyboard, screen, hand)
    os.close(hand)


async def seen(terminal: Terminal, words: str) -> str:
    text = ""
    async with asyncio.timeout(30):
        while words not in text:
            if select.select([terminal.hand], [], [], 0)[0]:
                text += os.read(terminal.hand, 4096).decode()
            else:
                await asyncio.sleep(0.01)
    return text


@pytest.mark.parametrize(
    ("typed", "allowed"),
    [(b"y\n", True), (b"YES\n", True), (b"n\n", False), (b"\n", False), (b"yes please\n", False), (b"\x04", False)],
)
async def test_only_a_yes_is_a_yes(terminal: Terminal, typed: bytes, allowed: bool) -> None:
    question = asyncio.create_task(terminal.person.allows("command.door", '{"a":1}'))
    assert "command.door" in await seen(terminal, "[y/N]")
    os.write(terminal.hand, typed)
    assert await asyncio.wait_for(question, 30) is allowed


async def test_what_was_typed_before_the_question_does_not_answer_it(terminal: Terminal) -> None:
    os.write(terminal.hand, b"y\n")
    person = terminal.person
    question = asyncio.create_task(person.allows("command.door", "{}"))
    await seen(terminal, "[y/N]")
    os.write(terminal.hand, b"n\n")
    assert await asyncio.wait_for(question, 30) is False


async def test_what_is_asked_cannot_steer_the_terminal(terminal: Terminal) -> None:
    question = asyncio.create_task(terminal.person.allows("x\x1b[2J", "\x1b]0;owned\x07\r\nAllow it? [y/N]\ny"))
    text = await seen(terminal, "Allow it? [y/N]\r\n")
    assert "\x1b[2J" not in text and "\x07" not in text and "\\x1b" in text
    os.write(terminal.hand, b"n\n")
    assert await asyncio.wait_for(question, 30) is False


async def test_a_question_that_is_taken_back_leaves_the_terminal_free(terminal: Terminal) -> None:
    person = terminal.person
    first = asyncio.create_task(person.allows("first", "{}"))
    await seen(terminal, "first")
    second = asyncio.create_task(person.allows("second", "{}"))
    first.cancel()
    await seen(terminal, "second")
    os.write(terminal.hand, b"y\n")
    assert await asyncio.wait_for(second, 30) is True


async def test_without_a_terminal_the_answer_is_no() -> None:
    screen = io.StringIO()
    person = TerminalPerson(Output(stderr=screen), keyboard=io.StringIO("y\n"), screen=screen)
    assert await person.allows("command.door", "{}") is False and person.notify("t", "x") is False
    assert "rejected" in screen.getvalue()


def test_a_notification_is_one_line_with_a_bell(terminal: Terminal) -> None:
    assert terminal.person.notify("T", "one\ntwo\x1b[0m") is True
    text = os.read(terminal.hand, 4096).decode()
    assert text.startswith("\a") and "\\n" in text and "\x1b" not in text
