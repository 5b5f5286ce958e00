"""The built-in generator: templates and inference. It invents nothing: what it cannot take over stays unwritten."""

import json
from collections.abc import Mapping
from typing import Any, Final

from palyra.skills.builder import BadGeneration, Generated, GenerationRequest
from palyra.skills.manifest_limits import MAX_DESCRIPTION_CHARS, MAX_SUMMARY_CHARS
from palyra.skills.project import Language
from palyra.skills.recorded_tools import Behaviour, RecordedTool, described_tool, in_one_line, plan_tools
from palyra.skills.scaffold import fill

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
        tools = plan_tools(request.calls, request.needs.hosts) if request.calls else (described_tool(request.prompt),)
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
    """Strings and lists of strings: TOML's basic strings take JSON's escapes, but for the delete character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(text: str) -> str:
    """A line that cannot end its comment."""
    return in_one_line(text).replace("*/", "* /").rstrip("\\")


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=True)


_C_FETCH: Final = """static void TOOL(struct text input, struct out *out) {
  static const char *const hosts[] = {HOSTS};
  struct text host = json_text(json_member(input, "host")), path = json_text(json_member(input, "path"));
  int handle = -1;
  for (int index = 0; index < COUNT; index++)
    if (same(host, hosts[index])) handle = http_handle(index);
  struct out head = {0};
  put_word(&head, "{\\"method\\":\\"GET\\",\\"path\\":");
  put_string(&head, path);
  put_word(&head, "}");
  int length = handle < 0 ? handle : http_send(handle, head.at, head.length, "", 0);
  if (length < 0) {
    fail("the request was not answered");
    return;
  }
  struct text whole = host_result(length);
  u32 line = 0;
  while (line < whole.length && whole.at[line] != '\\n') line++;
  put_word(out, "{\\"status\\":");
  put_text(out, json_member((struct text){whole.at, line}, "status"));
  put_word(out, ",\\"body\\":");
  u32 body = line < whole.length ? line + 1 : line;
  put_string(out, (struct text){whole.at + body, whole.length - body});
  put_word(out, "}");
}
"""
_C_READ: Final = """static void TOOL(struct text input, struct out *out) {
  struct text path = json_text(json_member(input, "path"));
  int length = storage_get(storage_handle(0), path.at, path.length);
  if (length < 0) {
    fail("there is no such text");
    return;
  }
  put_word(out, "{\\"content\\":");
  put_string(out, host_result(length));
  put_word(out, "}");
}
"""
_C_WRITE: Final = """static void TOOL(struct text input, struct out *out) {
  struct text path = json_text(json_member(input, "path")), content = json_text(json_member(input, "content"));
  if (storage_put(storage_handle(0), path.at, path.length, content.at, content.length) < 0) {
    fail("the text could not be stored");
    return;
  }
  put_word(out, "{\\"bytes\\":");
  put_number(out, content.length);
  put_word(out, "}");
}
"""
_C_ECHO: Final = "static void TOOL(struct text input, struct out *out) { put_text(out, input); }\n"
_C_UNWRITTEN: Final = """static void TOOL(struct text input, struct out *out) {
  (void)input, (void)out;
  fail("this tool is not written yet");
}
"""
_C: Final = {
    Behaviour.FETCH: _C_FETCH,
    Behaviour.READ: _C_READ,
    Behaviour.WRITE: _C_WRITE,
    Behaviour.ECHO: _C_ECHO,
    Behaviour.UNWRITTEN: _C_UNWRITTEN,
}


def _c_source(tools: tuple[RecordedTool, ...], hosts: tuple[str, ...]) -> str:
    # Handles count through the hosts in sorted order; so does this list.
    listed = ", ".join(map(_literal, hosts))
    parts = ['#include "palyra.h"\n#include "json.h"\n']
    for tool in tools:
        body = _C[tool.behaviour].replace("TOOL", _function(tool)).replace("HOSTS", listed)
        parts.append(f"/* {_comment(tool.description)} */\n{body.replace('COUNT', str(len(hosts)))}")
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


_AS: Final = {
    Behaviour.FETCH: """function TOOL(input: Value): i64 {
  const hosts: string[] = [HOSTS];
  const index = hosts.indexOf(input.member("host").text);
  const handle = index < 0 ? -1 : httpHandle(index);
  const head = '{"method":"GET","path":' + quoted(input.member("path").text) + "}";
  const length = handle < 0 ? handle : httpSend(handle, head, "");
  if (length < 0) return fail("the request was not answered");
  const whole = hostResult(length);
  const line = whole.indexOf("\\n");
  const status = parse(whole.substring(0, line)).member("status").text;
  return packed('{"status":' + status + ',"body":' + quoted(whole.substring(line + 1)) + "}");
}
""",
    Behaviour.READ: """function TOOL(input: Value): i64 {
  const length = storageGet(storageHandle(0), input.member("path").text);
  if (length < 0) return fail("there is no such text");
  return packed('{"content":' + quoted(hostResult(length)) + "}");
}
""",
    Behaviour.WRITE: """function TOOL(input: Value): i64 {
  const content = input.member("content").text;
  if (storagePut(storageHandle(0), input.member("path").text, content) < 0) return fail("the text could not be stored");
  return packed('{"bytes":' + String.UTF8.byteLength(content).toString() + "}");
}
""",
    Behaviour.ECHO: """function TOOL(input: Value): i64 {
  return packed(input.source);
}
""",
    Behaviour.UNWRITTEN: """function TOOL(input: Value): i64 {
  return fail("this tool is not written yet");
}
""",
}


def _assemblyscript_source(tools: tuple[RecordedTool, ...], hosts: tuple[str, ...]) -> str:
    listed = ", ".join(map(_literal, hosts))
    parts = [
        'import { Value, parse, quoted } from "./json";\nimport {\n  fail, hostResult, httpHandle, httpSend, packed,'
        ' storageGet, storageHandle, storagePut, textAt,\n} from "./palyra";\n\n'
        'export { palyra_alloc } from "./palyra";\n'
    ]
    for tool in tools:
        body = _AS[tool.behaviour].replace("TOOL", _function(tool)).replace("HOSTS", listed)
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
