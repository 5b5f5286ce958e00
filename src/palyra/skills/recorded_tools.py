"""The built-in generator's plan: which tool each kind of recorded call becomes, with its schemas and its tests.

What a skill can do by itself is taken over: fetching from a named host, reading and writing its own storage, giving
back its input. For every other call the tool is declared and tested, and its body is the author's to write: the tests
fail until then, and a candidate whose tests fail is not promoted.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

import msgspec

from palyra.skills.inference import STORAGE_ROOT, RecordedCall, host_and_path, infer_object_schema
from palyra.skills.manifest_limits import MAX_DESCRIPTION_CHARS, MAX_TOOL_ID_CHARS

_MAX_EXAMPLES: Final = 20
_NOT_IN_AN_ID: Final = re.compile(r"[^a-z0-9_-]+")
_TEXT: Final = {"type": "string"}
_STORAGE_PATH: Final = {"type": "string", "minLength": 1, "maxLength": 400}


class Behaviour(StrEnum):
    ECHO = "echo"
    FETCH = "fetch"
    READ = "read"
    WRITE = "write"
    UNWRITTEN = "unwritten"


class RecordedTool(msgspec.Struct, frozen=True, kw_only=True):
    """``examples`` are the documents of `examples/*.json`."""

    id: str
    source: str
    behaviour: Behaviour
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    examples: tuple[dict[str, Any], ...] = ()


def plan_tools(calls: Iterable[RecordedCall], hosts: tuple[str, ...]) -> tuple[RecordedTool, ...]:
    """One tool for each recorded tool, in the order of their first calls."""
    grouped: dict[str, list[RecordedCall]] = {}
    for call in calls:
        grouped.setdefault(call.tool, []).append(call)
    tools: list[RecordedTool] = []
    taken: set[str] = set()
    for name, members in grouped.items():
        tool = _planned(_tool_id(name, taken), name, members, hosts)
        taken.add(tool.id)
        tools.append(tool)
    return tuple(tools)


def in_one_line(text: str) -> str:
    """Text of a stranger for a manifest: what is not visible becomes a space."""
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def described_tool(prompt: str) -> RecordedTool:
    """For a description alone: one tool whose body and schemas the author has to make precise."""
    return RecordedTool(
        id="run",
        source="prompt",
        behaviour=Behaviour.UNWRITTEN,
        description=in_one_line(prompt)[:MAX_DESCRIPTION_CHARS],
        input_schema={"type": "object"},
        output_schema={"type": "object"},
    )


def _tool_id(name: str, taken: set[str]) -> str:
    word = _NOT_IN_AN_ID.sub("_", name.lower()).strip("_-")[: MAX_TOOL_ID_CHARS - 4] or "tool"
    found, number = word, 2
    while found in taken:
        found, number = f"{word}_{number}", number + 1
    return found


def _planned(tool_id: str, name: str, calls: list[RecordedCall], hosts: tuple[str, ...]) -> RecordedTool:
    if name == "http.fetch":
        fetched = [(call, host_and_path(call.arguments.get("url"))) for call in calls]
        plain = [(call, place) for call, place in fetched if place and call.arguments.get("method", "GET") == "GET"]
        if plain:
            examples = [_fetch_example(tool_id, call, *place) for call, place in plain]
            return _fetch_tool(tool_id, hosts, _distinct(examples))
    if name == "fs.read":
        return _read_tool(tool_id, _distinct(_read_example(tool_id, call) for call in calls))
    if name == "fs.write":
        return _write_tool(tool_id, _distinct(_write_example(tool_id, call) for call in calls))
    answered = [call for call in calls if isinstance(call.result, dict)]
    echoes = bool(answered) and all(call.result == call.arguments for call in answered)
    examples = [{"tool": tool_id, "input": call.arguments, "output": call.result} for call in answered]
    return RecordedTool(
        id=tool_id,
        source=name,
        behaviour=Behaviour.ECHO if echoes else Behaviour.UNWRITTEN,
        description=f"Does what {in_one_line(name)} did in the recorded calls.",
        input_schema=infer_object_schema([call.arguments for call in calls]),
        output_schema=infer_object_schema([call.result for call in answered]),
        examples=_distinct(examples),
    )


def _fetch_tool(tool_id: str, hosts: tuple[str, ...], examples: tuple[dict[str, Any], ...]) -> RecordedTool:
    return RecordedTool(
        id=tool_id,
        source="http.fetch",
        behaviour=Behaviour.FETCH,
        description=f"Fetches a path of {' or '.join(hosts)} and returns the status and the body.",
        input_schema=_object({"host": {"enum": list(hosts)}, "path": {"type": "string", "pattern": "^/[!-~]*$"}}),
        output_schema=_object({"status": {"type": "integer"}, "body": _TEXT}),
        examples=examples,
    )


def _fetch_example(tool_id: str, call: RecordedCall, host: str, path: str) -> dict[str, Any] | None:
    result = call.result
    if not isinstance(result, dict) or not isinstance(result.get("text"), str):
        return None
    status, body = result.get("status", 200), result["text"]
    return {
        "tool": tool_id,
        "input": {"host": host, "path": path},
        "http": [{"host": host, "path": path, "status": status, "body": body}],
        "output": {"status": status, "body": body},
    }


def _read_tool(tool_id: str, examples: tuple[dict[str, Any], ...]) -> RecordedTool:
    return RecordedTool(
        id=tool_id,
        source="fs.read",
        behaviour=Behaviour.READ,
        description="Reads a text of the skill's own storage.",
        input_schema=_object({"path": _STORAGE_PATH}),
        output_schema=_object({"content": _TEXT}),
        examples=examples,
    )


def _read_example(tool_id: str, call: RecordedCall) -> dict[str, Any] | None:
    path, result = call.arguments.get("path"), call.result
    content = result.get("content") if isinstance(result, dict) else None
    if not isinstance(path, str) or not isinstance(content, str) or not _plain_path(path):
        return None
    return {
        "tool": tool_id,
        "input": {"path": path},
        "storage": {f"{STORAGE_ROOT}/{path}": content},
        "output": {"content": content},
    }


def _write_tool(tool_id: str, examples: tuple[dict[str, Any], ...]) -> RecordedTool:
    return RecordedTool(
        id=tool_id,
        source="fs.write",
        behaviour=Behaviour.WRITE,
        description="Writes a text into the skill's own storage.",
        input_schema=_object({"path": _STORAGE_PATH, "content": _TEXT}),
        output_schema=_object({"bytes": {"type": "integer"}}),
        examples=examples,
    )


def _write_example(tool_id: str, call: RecordedCall) -> dict[str, Any] | None:
    path, content = call.arguments.get("path"), call.arguments.get("content")
    if not isinstance(path, str) or not isinstance(content, str) or not _plain_path(path):
        return None
    return {
        "tool": tool_id,
        "input": {"path": path, "content": content},
        "storage_after": {f"{STORAGE_ROOT}/{path}": content},
        "output": {"bytes": len(content.encode())},
    }


def _plain_path(path: str) -> bool:
    """Whether it can be a key of storage as it is."""
    return path.isprintable() and all(name not in ("", ".", "..") for name in path.split("/")) and "\\" not in path


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _distinct(examples: Iterable[dict[str, Any] | None]) -> tuple[dict[str, Any], ...]:
    kept = {msgspec.json.encode(one["input"]): one for one in examples if one is not None}
    return tuple(kept.values())[:_MAX_EXAMPLES]
