"""A log record as one line: for people, or as a JSON document with the ids of the call it is about.

Much of what is logged was written by agents or strangers, so no text of theirs can begin a line of its own, and what
looks like one of our tokens is taken out even where nobody registered it as a secret.
"""

import json
import logging
import re
from collections.abc import Callable
from typing import Any, Final

from palyra.clock import rfc3339
from palyra.secret import REDACTED
from palyra.telemetry.call_context import current_call

# A line longer than this is cut: a log is read by people, and shipped by programs with limits of their own.
MAX_LINE_CHARS: Final = 16_384
_CUT: Final = " […]"
_TOKEN: Final = re.compile(r"plr_[0-9A-Z]{26}_[A-Za-z0-9_-]{20,}|(?i:bearer)\s+[A-Za-z0-9._~+/-]{16,}=*")
_STEERING: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
MS: Final = 1000

Redact = Callable[[str], str]


class LineFormatter(logging.Formatter):
    """``redact`` takes known secrets out, and may be replaced when more of them are known."""

    def __init__(self, redact: Redact = str) -> None:
        super().__init__()
        self.redact = redact

    def clean(self, text: str) -> str:
        cleaned = _TOKEN.sub(REDACTED, self.redact(text))
        return cleaned if len(cleaned) <= MAX_LINE_CHARS else cleaned[: MAX_LINE_CHARS - len(_CUT)] + _CUT


class TextLines(LineFormatter):
    """What happened, after time, level and place; the ids of its call at the end."""

    def format(self, record: logging.LogRecord) -> str:
        call = current_call()
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
        if (call := current_call()) is not None:
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
    """What a caller of the log gave with ``extra={"data": {...}}``."""
    data = getattr(record, "data", None)
    return data if isinstance(data, dict) else {}


def time_of(record: logging.LogRecord) -> str:
    return rfc3339(int(record.created * MS))


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return {10: "\\n", 13: "\\r"}.get(code) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
