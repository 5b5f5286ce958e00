"""A log that nobody reads stops nobody, and one that is read late is complete."""

import fcntl
import logging
import os
import pty
import socket
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from palyra.telemetry import log as log_writer
from palyra.telemetry.log import MAX_KEPT_BYTES, LogWriter

LINE = "x" * 1000
# More than any pipe, socket or terminal holds, and than is kept.
MANY = 2000


class Log:
    """A writer on one end of something, and what comes out at the other."""

    def __init__(self, writing: int, reading: int) -> None:
        self.writing, self.reading = writing, reading
        self.writer = LogWriter(writing)

    def say(self, count: int) -> None:
        for number in range(count):
            self.writer.handle(logging.LogRecord("x", logging.INFO, "", 0, f"{number:05} {LINE}", None, None))

    def close(self) -> None:
        self.writer.close()
        os.close(self.writing)

    def read_in_thread(self) -> Callable[[], list[str]]:
        parts: list[bytes] = []

        def read() -> None:
            try:
                while part := os.read(self.reading, 1 << 16):
                    parts.append(part)
            except OSError:  # how a terminal ends
                return

        thread = threading.Thread(target=read)
        thread.start()

        def lines() -> list[str]:
            thread.join()
            return b"".join(parts).decode().splitlines()

        return lines


def a_pipe() -> tuple[int, int]:
    reading, writing = os.pipe()
    return writing, reading


def a_pipe_that_another_program_made_impatient() -> tuple[int, int]:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    return writing, reading


def a_socket() -> tuple[int, int]:
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


def a_terminal() -> tuple[int, int]:
    reading, writing = pty.openpty()
    attributes = termios.tcgetattr(writing)
    attributes[1] &= ~termios.OPOST
    termios.tcsetattr(writing, termios.TCSANOW, attributes)
    return writing, reading


@pytest.fixture(params=[a_pipe, a_pipe_that_another_program_made_impatient, a_socket, a_terminal])
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    log = Log(*request.param())
    yield log
    os.close(log.reading)


@pytest.mark.promise("P-floods")
@pytest.mark.timeout(60)
def test_a_log_that_nobody_reads_stops_nobody_and_says_later_what_is_missing(log: Log) -> None:
    flags = fcntl.fcntl(log.writing, fcntl.F_GETFL)
    log.say(MANY)
    assert fcntl.fcntl(log.writing, fcntl.F_GETFL) == flags
    lines = log.read_in_thread()
    log.close()
    *came, reported = lines()
    missing = MANY - len(came)
    # Whole lines, in order, from the first on; and as many as were to be kept.
    assert came == [f"{number:05} {LINE}" for number in range(len(came))] and missing > 0
    assert len(came) * len(LINE) > MAX_KEPT_BYTES - 2 * len(LINE)
    assert reported == f"{missing} lines were left out here: nobody read this log"


@pytest.mark.timeout(60)
def test_a_log_that_is_read_late_is_complete_and_goes_on(log: Log) -> None:
    log.writer.say("a line for people")
    log.say(150)
    lines = log.read_in_thread()
    with log.writer._changed:
        assert log.writer._changed.wait_for(lambda: log.writer._thread is None, 30)
    log.say(3)
    log.close()
    first, *others = lines()
    assert first == "a line for people"
    assert [line[:5] for line in others] == [f"{number:05}" for number in (*range(150), *range(3))]


@pytest.mark.timeout(60)
def test_the_end_waits_a_moment_for_a_reader_and_not_longer(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.say(150)
    with monkeypatch.context() as patched:
        patched.setattr(log_writer, "CLOSE_SECONDS", 0.01)
        log.writer.close()
    lines = log.read_in_thread()
    log.close()
    assert len(lines()) == 150


def test_a_file_gets_every_line_at_once(tmp_path: Path) -> None:
    with open(tmp_path / "log", "ab") as file:
        log = Log(os.dup(file.fileno()), -1)
        log.say(MANY)
        assert len((tmp_path / "log").read_text().splitlines()) == MANY
        log.close()


def test_a_reader_that_went_away_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log(*a_pipe())
    os.close(log.reading)
    log.say(3)
    log.close()
    log.say(1)
    assert capsys.readouterr().err == ""


def test_without_another_way_in_a_thread_does_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str, flags: int) -> int:
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(log_writer.os, "open", refused)
        log = Log(*a_pipe())
    log.say(150)
    lines = log.read_in_thread()
    log.close()
    assert len(lines()) == 150
    os.close(log.reading)
