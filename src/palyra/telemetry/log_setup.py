"""Installs a daemon's log on stderr."""

import logging
import os
import sys
from collections.abc import Mapping
from typing import Final, get_args

import msgspec

from palyra.telemetry.log_lines import JsonLines, LineFormatter, Redact, TextLines
from palyra.telemetry.log_settings import LogSettings
from palyra.telemetry.log_writer import LogWriter

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
    """For a program without a settings file: the same variables that override the file elsewhere. What is not one of
    the choices counts as not given: a log is no reason not to start."""
    given = {
        field.name: environ.get(f"PALYRA_LOG__{field.name.upper()}", "").lower()
        for field in msgspec.structs.fields(LogSettings)
    }
    choices = {
        field.name: get_args(get_args(field.type)[0]) if get_args(field.type) else ()
        for field in msgspec.structs.fields(LogSettings)
    }
    return LogSettings(**{name: value for name, value in given.items() if value in choices[name]})  # type: ignore[arg-type]
