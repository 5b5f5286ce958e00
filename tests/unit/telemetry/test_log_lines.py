"""Lines of the log: whole, named after their call, without secrets, and one each."""

import json
import logging
import sys
from typing import Any

import pytest

from palyra.telemetry.log import MAX_LINE_CHARS, CallContext, JsonLines, TextLines, current_call

TOKEN = "plr_01ARZ3NDEKTSV4RRFFQ69G5FAV_" + "s" * 43
CALL = CallContext("01CALL", "01RUN", "agent:bot", "echo")


def record(message: str, *args: Any, data: Any = None, broken: bool = False) -> logging.LogRecord:
    info = None
    if broken:
        try:
            raise ValueError(f"inner {TOKEN}")
        except ValueError:
            info = sys.exc_info()
    made = logging.LogRecord("palyra.api", logging.WARNING, "file.py", 1, message, args, info)
    made.created = 1_700_000_000.5
    if data is not None:
        made.data = data
    return made


def test_a_document_has_its_fields_and_the_ids_of_its_call() -> None:
    lines = JsonLines()
    assert json.loads(lines.format(record("hello %s", "there"))) == {
        "time": "2023-11-14T22:13:20.500Z",
        "level": "warning",
        "logger": "palyra.api",
        "message": "hello there",
    }
    token = current_call.set(CALL)
    document = json.loads(lines.format(record("x", data={"status": "failed", "duration_ms": 3})))
    current_call.reset(token)
    assert document["call_id"] == "01CALL" and document["run_id"] == "01RUN" and document["principal"] == "agent:bot"
    assert (document["status"], document["duration_ms"]) == ("failed", 3)


@pytest.mark.promise("P-journal-clean")
@pytest.mark.parametrize("lines", [JsonLines(), TextLines()], ids=["json", "text"])
def test_secrets_and_tokens_are_taken_out_wherever_they_stand(lines: JsonLines | TextLines) -> None:
    lines.redact = lambda text: text.replace("hunter22", "[redacted]")
    line = lines.format(record("got hunter22, %s", f"Bearer {TOKEN}", data={"note": "hunter22"}, broken=True))
    assert "hunter22" not in line and TOKEN not in line and "sssss" not in line
    assert line.count("[redacted]") >= 4


@pytest.mark.promise("P-journal-clean")
@pytest.mark.parametrize("lines", [JsonLines(), TextLines()], ids=["json", "text"])
def test_nobody_begins_a_line_of_their_own(lines: JsonLines | TextLines) -> None:
    forged = "x\n2023-11-14T22:13:20.500Z INFO palyra: all is well\r\x1b[2J\u2028\u202e"
    assert len(lines.format(record("%s", forged)).splitlines()) == 1


def test_a_traceback_is_whole_and_indented() -> None:
    first, *rest = TextLines().format(record("it broke", broken=True)).splitlines()
    assert first.endswith("palyra.api: it broke") and all(line.startswith("    ") for line in rest)
    assert json.loads(JsonLines().format(record("it broke", broken=True)))["exception"]["type"] == "ValueError"


def test_a_line_has_an_end_and_a_value_that_json_does_not_know_a_name() -> None:
    assert len(json.loads(JsonLines().format(record("x" * 10**6)))["message"]) == MAX_LINE_CHARS
    assert json.loads(JsonLines().format(record("x", data={"kind": object})))["kind"] == str(object)
