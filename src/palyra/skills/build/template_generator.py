"""The built-in generator: templates and inference. It invents nothing.

It writes tools for what a skill can do by itself: fetch from a named host, read and write its own storage, return its
input. For every other call the tool is declared and tested, and the author writes its body. The tests fail until then,
and a candidate whose tests fail is not promoted.
"""

import json
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from importlib import resources
from typing import Any, Final

import msgspec

from palyra.skills.build.generation import (
    STORAGE_ROOT,
    BadGeneration,
    Generated,
    GenerationRequest,
    RecordedCall,
    host_and_path,
    infer_object_schema,
)
from palyra.skills.build.project import Language, fill
from palyra.skills.limits import MAX_DESCRIPTION_CHARS, MAX_SUMMARY_CHARS, MAX_TOOL_ID_CHARS

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
    """Plan one tool for each recorded tool, in the order of their first calls."""
    grouped: dict[str, list[RecordedCall]] = {}
    for call in calls:
        grouped.setdefault(call.tool, []).append(call)
    tools: list[RecordedTool] = []
    taken: set[str] = set()
    for name, members in grouped.items():
        tool = _plan_tool(_tool_id(name, taken), name, members, hosts)
        taken.add(tool.id)
        tools.append(tool)
    return tuple(tools)


def in_one_line(text: str) -> str:
    """Make a stranger's text fit for a manifest: characters that are not visible become spaces."""
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def plan_described_tool(prompt: str) -> RecordedTool:
    """Plan one tool for a description alone. The author has to make its body and schemas precise."""
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


def _plan_tool(tool_id: str, name: str, calls: list[RecordedCall], hosts: tuple[str, ...]) -> RecordedTool:
    if name == "http.fetch":
        fetched = [(call, host_and_path(call.arguments.get("url"))) for call in calls]
        plain = [(call, place) for call, place in fetched if place and call.arguments.get("method", "GET") == "GET"]
        if plain:
            examples = [_fetch_example(tool_id, call, *place) for call, place in plain]
            return RecordedTool(
                id=tool_id,
                source=name,
                behaviour=Behaviour.FETCH,
                description=f"Fetches a path of {' or '.join(hosts)} and returns the status and the body.",
                input_schema=_object(
                    {"host": {"enum": list(hosts)}, "path": {"type": "string", "pattern": "^/[!-~]*$"}}
                ),
                output_schema=_object({"status": {"type": "integer"}, "body": _TEXT}),
                examples=_distinct(examples),
            )
    if name in _STORAGE_TOOLS:
        behaviour, description, input_schema, output_schema, example = _STORAGE_TOOLS[name]
        return RecordedTool(
            id=tool_id,
            source=name,
            behaviour=behaviour,
            description=description,
            input_schema=input_schema,
            output_schema=output_schema,
            examples=_distinct(example(tool_id, call) for call in calls),
        )
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
    """Tell whether the path can be a key of storage unchanged."""
    return path.isprintable() and all(name not in ("", ".", "..") for name in path.split("/")) and "\\" not in path


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_STORAGE_TOOLS: Final = {
    "fs.read": (
        Behaviour.READ,
        "Reads a text of the skill's own storage.",
        _object({"path": _STORAGE_PATH}),
        _object({"content": _TEXT}),
        _read_example,
    ),
    "fs.write": (
        Behaviour.WRITE,
        "Writes a text into the skill's own storage.",
        _object({"path": _STORAGE_PATH, "content": _TEXT}),
        _object({"bytes": {"type": "integer"}}),
        _write_example,
    ),
}


def _distinct(examples: Iterable[dict[str, Any] | None]) -> tuple[dict[str, Any], ...]:
    kept = {msgspec.json.encode(one["input"]): one for one in examples if one is not None}
    return tuple(kept.values())[:_MAX_EXAMPLES]


LANGUAGES: Final = (Language.C, Language.ASSEMBLYSCRIPT)
_KEPT: Final = (
    "gitignore.in",
    "build.toml.in",
    "src/palyra.h.in",
    "src/json.h.in",
    "src/palyra.ts.in",
    "src/json.ts.in",
)
_MAIN: Final = {Language.C: "src/main.c", Language.ASSEMBLYSCRIPT: "src/main.ts"}


class TemplateGenerator:
    """``templates`` are the shipped ones by language: a generated project builds as a new one does."""

    name = "palyra.templates.v1"

    def __init__(self, templates: Mapping[Language, Mapping[str, str]]) -> None:
        self._templates = templates

    def generate(self, request: GenerationRequest) -> Generated:
        if request.language not in LANGUAGES:
            raise BadGeneration(
                f"the built-in generator does not write {request.language}",
                hint=f"it writes {', '.join(LANGUAGES)}; skills.builder_command can name another generator",
            )
        tools = (
            plan_tools(request.calls, request.needs.hosts) if request.calls else (plan_described_tool(request.prompt),)
        )
        kept = {path: text for path, text in self._templates[request.language].items() if path in _KEPT}
        files = {path: text for path, text in fill(kept, request.names).items() if not path.startswith(".")}
        files["skill.toml"] = _manifest(request, tools)
        files[_MAIN[request.language]] = (
            _c_source(tools, request.needs.hosts)
            if request.language is Language.C
            else _assemblyscript_source(tools, request.needs.hosts)
        )
        for tool in tools:
            for number, example in enumerate(tool.examples, 1):
                text = json.dumps(example, indent=2, ensure_ascii=False)
                files[f"examples/{tool.id}-{number}.json"] = f"{text}\n"
        files["README.md"] = _readme(request, tools)
        notes = [
            *request.needs.beyond,
            *(f"{tool.id}: write its body" for tool in tools if tool.behaviour is Behaviour.UNWRITTEN),
            *(f"{tool.id}: no recorded example" for tool in tools if not tool.examples),
        ]
        return Generated(files=files, notes=tuple(notes))


def _manifest(request: GenerationRequest, tools: tuple[RecordedTool, ...]) -> str:
    names, needs = request.names, request.needs
    described = in_one_line(request.prompt) or "Made from recorded calls."
    lines = [
        "manifest_version = 1",
        f"skill_id = {_toml(names.skill_id)}",
        f"name = {_toml(names.name)}",
        'version = "0.1.0"',
        f"publisher = {_toml(names.publisher)}",
        f"description = {_toml(described[:MAX_SUMMARY_CHARS])}",
    ]
    reach = bool(needs.hosts)
    for tool in tools:
        lines += [
            "",
            "[[entrypoints.tools]]",
            f"id = {_toml(tool.id)}",
            f"description = {_toml(tool.description[:MAX_DESCRIPTION_CHARS])}",
            f"module = {_toml(names.module)}",
            f"risk = {_toml('medium' if reach or tool.behaviour is Behaviour.WRITE else 'low')}",
            f"input_schema = {_toml(_compact(tool.input_schema))}",
            f"output_schema = {_toml(_compact(tool.output_schema))}",
        ]
    lines += ["", "[capabilities]", f"http_egress_allowlist = {_toml(list(needs.hosts))}"]
    lines += ["[capabilities.filesystem]", f"read_roots = {_toml(list(needs.read_roots))}"]
    lines += [f"write_roots = {_toml(list(needs.write_roots))}", "", "[compat]", 'abi = "core"']
    return "\n".join(lines) + "\n"


def _readme(request: GenerationRequest, tools: tuple[RecordedTool, ...]) -> str:
    rows = [f"- `{tool.id}` ({tool.behaviour}), from {tool.source}: {len(tool.examples)} examples" for tool in tools]
    return "\n".join([f"# {request.names.name}", "", "Generated, and in need of a review.", "", *rows, ""])


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _toml(value: Any) -> str:
    """Write strings and lists of strings: TOML's basic strings take JSON's escapes, but for the delete character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(text: str) -> str:
    """Make a line that cannot end its comment."""
    return in_one_line(text).replace("*/", "* /").rstrip("\\")


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=True)


def _body(language: Language, tool: RecordedTool, hosts: str, count: int) -> str:
    """Read the body of a tool's function, with its names filled in."""
    text = (resources.files("palyra.skills.build") / "bodies" / language / f"{tool.behaviour}.in").read_text("utf-8")
    return text.replace("TOOL", _function(tool)).replace("HOSTS", hosts).replace("COUNT", str(count))


def _c_source(tools: tuple[RecordedTool, ...], hosts: tuple[str, ...]) -> str:
    # Handles count through the hosts in sorted order; so does this list.
    listed = ", ".join(map(_literal, hosts))
    parts = ['#include "palyra.h"\n#include "json.h"\n']
    for tool in tools:
        parts.append(f"/* {_comment(tool.description)} */\n{_body(Language.C, tool, listed, len(hosts))}")
    branches = [
        f"  if (same(tool, {_literal(tool.id)})) {{\n    {_function(tool)}(input, out);\n    return;\n  }}"
        for tool in tools
    ]
    parts.append(
        "static void answer(struct text tool, struct text input, struct out *out) {\n"
        + "\n".join(branches)
        + '\n  fail("this skill has no such tool");\n}\n'
    )
    return "\n".join(parts)


def _assemblyscript_source(tools: tuple[RecordedTool, ...], hosts: tuple[str, ...]) -> str:
    listed = ", ".join(map(_literal, hosts))
    parts = [
        'import { Value, parse, quoted } from "./json";\nimport {\n  fail, hostResult, httpHandle, httpSend, packed,'
        ' storageGet, storageHandle, storagePut, textAt,\n} from "./palyra";\n\n'
        'export { palyra_alloc } from "./palyra";\n'
    ]
    for tool in tools:
        body = _body(Language.ASSEMBLYSCRIPT, tool, listed, len(hosts))
        parts.append(f"/* {_comment(tool.description)} */\n{body}")
    branches = [f"  if (id == {_literal(tool.id)}) return {_function(tool)}(value);" for tool in tools]
    parts.append(
        "export function run(tool: usize, toolLength: i32, input: usize, inputLength: i32): i64 {\n"
        "  const id = textAt(tool, toolLength);\n  const value = parse(textAt(input, inputLength));\n"
        + "\n".join(branches)
        + '\n  return fail("this skill has no such tool");\n}\n'
    )
    return "\n".join(parts)


def _function(tool: RecordedTool) -> str:
    return "tool_" + tool.id.replace("-", "_")
