"""The log of a daemon on its stderr."""

import json
import logging
from collections.abc import Iterator

import pytest

from palyra.telemetry.log import DaemonLog, LogSettings, log_settings_of, set_up_log


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("palyra")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    logging.getLogger("palyra.x").debug("a debug line")
    logging.getLogger("palyra.x").info("an info line with hunter22")
    logging.getLogger("palyra.x").warning("a warning")
    logging.getLogger("grpc").info("somebody else's")
    return capsys.readouterr().err.splitlines()


def test_levels_count_for_ours_and_libraries_only_warn(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_log(LogSettings())
    assert [line.split(": ", 1)[1] for line in lines(capsys)] == ["an info line with hunter22", "a warning"]
    set_up_log(LogSettings(level="debug"))
    assert len(lines(capsys)) == 3
    set_up_log(LogSettings(), at_least="warning")
    assert len(lines(capsys)) == 1


def test_documents_and_secrets_that_become_known_later(capsys: pytest.CaptureFixture[str]) -> None:
    log: DaemonLog = set_up_log(LogSettings(format="json"))
    log.redact_with(lambda text: text.replace("hunter22", "[redacted]"))
    assert json.loads(lines(capsys)[0])["message"] == "an info line with [redacted]"
    log.say("prose")
    assert capsys.readouterr().err == "prose\n"
    log.remove()
    assert lines(capsys) == []


def test_the_environment_of_a_program_without_settings() -> None:
    assert log_settings_of({}) == LogSettings()
    assert log_settings_of({"PALYRA_LOG__FORMAT": "JSON", "PALYRA_LOG__LEVEL": "debug"}) == LogSettings(
        format="json", level="debug"
    )
    assert log_settings_of({"PALYRA_LOG__LEVEL": "loud"}) == LogSettings()
