from typing import Any

import jsonschema_rs
import pytest

from palyra.executors.process import spec
from palyra.sandbox.domain.process_run import parse_command

ALL = {name: value for name, value in vars(spec).items() if name.endswith(("_INPUT", "_OUTPUT"))}


def objects(schema: Any) -> list[dict[str, Any]]:
    if isinstance(schema, list):
        return [each for item in schema for each in objects(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "object" else []
    return own + [each for item in schema.values() for each in objects(item)]


def test_the_four_tools_have_schemas() -> None:
    assert set(ALL) == {f"{tool}_{side}" for tool in ("RUN", "START", "LOGS", "STOP") for side in ("INPUT", "OUTPUT")}


@pytest.mark.parametrize("name", sorted(ALL))
def test_schemas_are_valid_closed_and_described(name: str) -> None:
    jsonschema_rs.meta.validate(ALL[name])
    for each in objects(ALL[name]):
        assert each["additionalProperties"] is False
        assert all(value.get("description") for value in each["properties"].values())


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": "ls"},
        {"command": "ls", "args": ["-la", ""], "cwd": "sub", "env": {"A_1": ""}, "timeout_ms": 5, "background": True},
        {"command": "cat", "stdin": "AA==", "stdin_encoding": "base64", "requested_egress_hosts": ["h:1"]},
    ],
)
def test_what_the_schema_takes_the_parser_takes(arguments: dict[str, Any]) -> None:
    jsonschema_rs.validate(spec.RUN_INPUT, arguments)
    assert parse_command(arguments).command == arguments["command"]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"command": ""},
        {"command": "ls", "shell": True},
        {"command": "ls", "args": "-la"},
        {"command": "ls", "env": {"A=B": "x"}},
        {"command": "ls", "timeout_ms": 0},
        {"command": "ls", "stdin_encoding": "hex"},
    ],
)
def test_what_the_schema_refuses(arguments: dict[str, Any]) -> None:
    assert not jsonschema_rs.is_valid(spec.RUN_INPUT, arguments)


def test_results_fit() -> None:
    stream = {"stdout": "", "stdout_encoding": "utf-8", "stdout_truncated": False}
    errors = {"stderr": "", "stderr_encoding": "utf-8", "stderr_truncated": False}
    ended = {
        "exit_code": None,
        "signal": 9,
        "duration_ms": 1,
        "killed_by": "timeout",
        "tier": "c",
        "backend": "bubblewrap",
    }
    jsonschema_rs.validate(spec.RUN_OUTPUT, {**stream, **errors, **ended})
    jsonschema_rs.validate(spec.RUN_OUTPUT, {"handle": "h", "tier": "c", "backend": "bubblewrap"})
    jsonschema_rs.validate(spec.STOP_OUTPUT, {"handle": "h", "state": "killed", **stream, **errors, **ended})
    jsonschema_rs.validate(
        spec.LOGS_OUTPUT,
        {
            "handle": "h",
            "state": "running",
            "stream": "stdout",
            "content": "",
            "encoding": "utf-8",
            "offset": 0,
            "next_offset": 0,
            "truncated": False,
        },
    )
