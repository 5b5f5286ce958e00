"""A log record as one line: for people, or as a JSON document with the ids of the call it is about.

Much of what is logged was written by agents or strangers, so no text of theirs can begin a line of its own, and what
looks like one of our tokens is taken out even where nobody registered it as a secret.
"""

import contextlib
import json
import logging
import os
import re
import select
import socket
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta

from palyra.clock import rfc3339
from palyra.secret import REDACTED

# A line longer than this is cut: a log is read by people, and shipped by programs with limits of their own.
MAX_LINE_CHARS: Final = 16_384
_CUT: Final = " […]"
_TOKEN: Final = re.compile(r"plr_[0-9A-Z]{26}_[A-Za-z0-9_-]{20,}|(?i:bearer)\s+[A-Za-z0-9._~+/-]{16,}=*")
_STEERING: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
MS: Final = 1000

Redact = Callable[[str], str]


class CallContext(NamedTuple):
    """The ids that stand in each log line of a call."""

    call_id: str
    run_id: str
    principal: str
    tool: str


# The call that the running code works for. Tasks and threads inherit it.
current_call: ContextVar[CallContext | None] = ContextVar("palyra_call", default=None)


class LineFormatter(logging.Formatter):
    """``redact`` takes known secrets out, and may be replaced when more of them are known."""

    def __init__(self, redact: Redact = str) -> None:
        super().__init__()
        self.redact = redact

    def clean(self, text: str) -> str:
        cleaned = _TOKEN.sub(REDACTED, self.redact(text))
        return cleaned if len(cleaned) <= MAX_LINE_CHARS else cleaned[: MAX_LINE_CHARS - len(_CUT)] + _CUT


class TextLines(LineFormatter):
    """Lines for people: time, level and place, the message, and the ids of its call at the end."""

    def format(self, record: logging.LogRecord) -> str:
        call = current_call.get()
        ids = f" [call {call.call_id} run {call.run_id} {call.principal}]" if call is not None else ""
        said = " ".join(f"{name}={value}" for name, value in data_of(record).items())
        message = _STEERING.sub(_spelled, self.clean(record.getMessage() + (f" ({said})" if said else "")))
        line = f"{time_of(record)} {record.levelname} {record.name}: {message}{ids}"
        if record.exc_info:
            # Indented, so that no part of it looks like a line of ours.
            line += "\n    " + self.clean(self.formatException(record.exc_info)).replace("\n", "\n    ")
        return line


class JsonLines(LineFormatter):
    """One document a line. ``call_id``, ``run_id``, ``principal`` and ``tool`` are there while a call is worked on."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self.clean(record.getMessage()),
        }
        if (call := current_call.get()) is not None:
            document |= call._asdict()
        document |= {
            name: self.clean(value) if isinstance(value, str) else value for name, value in data_of(record).items()
        }
        if record.exc_info and record.exc_info[0] is not None:
            trace = self.clean(self.formatException(record.exc_info))
            document["exception"] = {"type": record.exc_info[0].__name__, "trace": trace}
        # In ASCII: no character of a message ends a line for anybody who reads it.
        return json.dumps(document, default=str)


def data_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return what the caller of the log passed as ``extra={"data": {...}}``."""
    data = getattr(record, "data", None)
    return data if isinstance(data, dict) else {}


def time_of(record: logging.LogRecord) -> str:
    return rfc3339(int(record.created * MS))


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return {10: "\\n", 13: "\\r"}.get(code) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


# The settings of a daemon's log: the section `log`.


def _says(description: str) -> Meta:
    return Meta(description=description)


class LogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Annotated[
        Literal["text", "json"], _says("How daemons log to stderr: lines for people, or one JSON document a line.")
    ] = "text"
    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        _says("The least that is logged; `palyra up` at a terminal logs warnings unless this is set."),
    ] = "info"


# Writes log lines without ever waiting for who reads them.
#
# A daemon logs on its event loop, and agents and servers have a say in how much. A pipe that nobody empties, or a
# terminal that was stopped, must not stop the daemon: what does not fit at once is kept for a thread to write, and
# beyond some hundred lines it is left out and counted.

# Kept for a reader that is slow: some hundred lines with their tracebacks.
MAX_KEPT_BYTES: Final = 256 * 1024
# What is kept has so long to be written when the daemon ends.
CLOSE_SECONDS: Final = 1.0
_AT_ONCE: Final = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class LogWriter(logging.Handler):
    """To a descriptor that other programs have too: its flags stay as they are."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._opened = contextlib.ExitStack()
        self._descriptor = os.dup(descriptor)
        self._opened.callback(os.close, self._descriptor)
        self._at_once = _without_waiting(self._descriptor, self._opened)
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._left_out = 0
        # There as long as something is kept.
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._line(record)
        except Exception:
            self.handleError(record)
        else:
            self._put(line)

    def say(self, text: str) -> None:
        """Format a line for people."""
        self._put(f"{text}\n".encode("utf-8", "backslashreplace"))

    def _put(self, line: bytes) -> None:
        with self._changed:
            if self._thread is None:
                try:
                    line = line[self._at_once(line) :]
                except BlockingIOError:
                    pass
                except OSError:
                    # Nobody will read it, or the disk is full: a log is no reason to fail.
                    return
            if line:
                self._keep(line)

    def _line(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode("utf-8", "backslashreplace")

    def _keep(self, line: bytes) -> None:
        if self._left_out or self._kept_bytes + len(line) > MAX_KEPT_BYTES:
            # Drop the next lines too, until the gap is logged: all missing lines are missing in one place.
            self._left_out += 1
            return
        self._kept.append(line)
        self._kept_bytes += len(line)
        if self._thread is None:
            self._thread = threading.Thread(target=self._catch_up, name="palyra-log", daemon=True)
            self._thread.start()

    def _catch_up(self) -> None:
        while (line := self._next()) is not None:
            with contextlib.suppress(OSError):
                _write_all(self._descriptor, line)

    def _next(self) -> bytes | None:
        with self._changed:
            if not self._kept and self._left_out:
                self._kept.append(self._line(_left_out(self._left_out)))
                self._kept_bytes = len(self._kept[0])
                self._left_out = 0
            if self._kept:
                self._kept_bytes -= len(self._kept[0])
                return self._kept.popleft()
            self._thread = None
            self._changed.notify_all()
            return None

    def close(self) -> None:
        """Close the stream. A thread that still waits for a reader afterwards ends with the process."""
        with self._changed:
            if self._changed.wait_for(lambda: self._thread is None, CLOSE_SECONDS):
                self._at_once = len
                self._opened.close()
        super().close()


def _without_waiting(descriptor: int, opened: contextlib.ExitStack) -> Callable[[bytes], int]:
    """Return a function that writes what fits now, or raises BlockingIOError."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return partial(os.write, descriptor)
    if stat.S_ISSOCK(mode):
        ours = opened.enter_context(socket.socket(fileno=os.dup(descriptor)))
        return lambda line: ours.send(line, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    try:
        # Opened once more, a pipe or a terminal has flags that are ours alone.
        own = os.open(f"/proc/self/fd/{descriptor}", _AT_ONCE)
    except OSError:
        return _leave_to_thread
    opened.callback(os.close, own)
    return partial(os.write, own)


def _leave_to_thread(line: bytes) -> int:
    raise BlockingIOError


def _write_all(descriptor: int, line: bytes) -> None:
    """Write all, even if another program made the descriptor non-blocking."""
    writable = select.poll()
    writable.register(descriptor, select.POLLOUT)
    while line:
        writable.poll()
        with contextlib.suppress(BlockingIOError):
            line = line[os.write(descriptor, line) :]


def _left_out(count: int) -> logging.LogRecord:
    said = "%d lines were left out here: nobody read this log"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, said, (count,), None)


# Installs a daemon's log on stderr.

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class DaemonLog:
    """The one handler of this process."""

    def __init__(self, handler: logging.Handler, formatter: LineFormatter) -> None:
        self._handler = handler
        self._formatter = formatter

    def redact_with(self, redact: Redact) -> None:
        """From now on these secrets do not reach the log."""
        self._formatter.redact = redact

    def say(self, text: str) -> None:
        """Prose beside the log, on the same stderr."""
        if isinstance(self._handler, LogWriter):
            self._handler.say(text)
        else:
            sys.stderr.write(f"{text}\n")

    def remove(self) -> None:
        logging.getLogger().removeHandler(self._handler)
        self._handler.close()


def set_up_log(settings: LogSettings, *, at_least: str = "debug") -> DaemonLog:
    """``at_least`` is a floor under the level. What other libraries say below a warning is left out."""
    formatter: LineFormatter = JsonLines() if settings.format == "json" else TextLines()
    handler = _handler()
    handler.setFormatter(formatter)
    root = logging.getLogger()
    for other in [one for one in root.handlers if getattr(one, "formatter", None).__class__ in (TextLines, JsonLines)]:
        root.removeHandler(other)
        other.close()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("palyra").setLevel(max(_LEVELS[settings.level], _LEVELS[at_least]))
    return DaemonLog(handler, formatter)


def _handler() -> logging.Handler:
    try:
        return LogWriter(sys.stderr.fileno())
    except (AttributeError, OSError):
        # Not a file of the system: somebody took its place in this process.
        return logging.StreamHandler(sys.stderr)


def log_settings_of(environ: Mapping[str, str] = os.environ) -> LogSettings:
    """Read the settings from the environment, for a program without a settings file.

    An invalid value counts as not given: a log is no reason not to start.
    """
    given = {
        field.name: environ.get(f"PALYRA_LOG__{field.name.upper()}", "").lower()
        for field in msgspec.structs.fields(LogSettings)
    }
    choices = {
        field.name: get_args(get_args(field.type)[0]) if get_args(field.type) else ()
        for field in msgspec.structs.fields(LogSettings)
    }
    return LogSettings(**{name: value for name, value in given.items() if value in choices[name]})  # type: ignore[arg-type]
