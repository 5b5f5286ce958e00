"""The skills whose calls are measured: the smallest there can be, and one of `examples/skills` as people use it."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec

from fakes.skill_harness import ACTOR, PUBLISHER, entries, key, manifest
from fakes.wasm_guests import wasm
from fakes.wasm_skills import ECHO_SKILL
from palyra.daemon.gateway_wiring import Gateway
from palyra.skills.build.project import Language, ModuleBuild
from palyra.skills.build.toolchain import Toolchains, default_cache
from palyra.skills.package.artifact import pack_artifact
from palyra.skills.package.manifest import parse_manifest
from palyra.skills.trust.signature import sign_artifact
from perf.extism_peer import EXTISM_ECHO

_HERE = Path(__file__).parent
_EXAMPLE = _HERE.parents[1] / "examples" / "skills" / "json-csv"
_ROWS = 3


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """One tool of a skill, and what it answers; the same for extism."""

    name: str
    tool: str
    tool_id: str
    manifest: bytes
    module: bytes
    extism_module: bytes
    arguments: dict[str, Any]
    result: dict[str, Any]

    @property
    def given(self) -> bytes:
        return msgspec.json.encode(self.arguments)

    async def put_in_use(self, gateway: Gateway) -> None:
        parsed = parse_manifest(self.manifest)
        publisher, name = parsed.publisher, next(iter(parsed.tools)).module
        packed = pack_artifact(entries(self.manifest, modules={name: self.module}))
        skills = gateway.skills
        await skills.trust_publisher(publisher, key(publisher).public_key(), actor=ACTOR)
        installed = await skills.install(sign_artifact(packed, key(publisher)).raw, actor=ACTOR)
        await skills.approve(installed.skill_id, installed.version, installed.digest, actor=ACTOR)


def smallest() -> Subject:
    arguments = {"text": "a plain little document", "numbers": [1, 2, 3]}
    text = manifest(publisher=PUBLISHER)
    return Subject(
        name="the smallest skill",
        tool=_tool(text, "add"),
        tool_id="add",
        manifest=text,
        module=wasm(ECHO_SKILL),
        extism_module=wasm(EXTISM_ECHO),
        arguments=arguments,
        result=arguments,
    )


def json_csv(folder: Path) -> Subject:
    """The same source in C behind our interface and behind extism's, by the same compiler."""
    shutil.copytree(_EXAMPLE / "src", folder / "json-csv")
    shutil.copy(_HERE / "extism_json_csv.c", folder / "json-csv" / "extism_json_csv.c")
    tools = Toolchains(
        default_cache(os.environ),
        wit=folder,
        environ=os.environ,
        say=lambda text: print(text, file=sys.stderr),
    )
    sources = {"ours": ModuleBuild(sources=("main.c",)), "extism": ModuleBuild(sources=("extism_json_csv.c",))}
    built = tools.build(folder / "json-csv", Language.C, sources).modules
    text = (_EXAMPLE / "skill.toml").read_bytes()
    rows = [{"name": f"Order {number}", "note": 'shoes, "blue"', "euros": number * 7} for number in range(_ROWS)]
    lines = [f'Order {number},"shoes, ""blue""",{number * 7}\r\n' for number in range(_ROWS)]
    return Subject(
        name="the example json-csv",
        tool=_tool(text, "to_csv"),
        tool_id="to_csv",
        manifest=text,
        module=built["ours"],
        extism_module=built["extism"],
        arguments={"rows": rows},
        result={"csv": "name,note,euros\r\n" + "".join(lines), "rows": _ROWS},
    )


def as_guests_write(result: dict[str, Any]) -> bytes:
    """JSON without spaces, a carriage return as a guest in C writes it."""
    return json.dumps(result, separators=(",", ":")).replace("\\r", "\\u000d").encode()


def _tool(text: bytes, tool_id: str) -> str:
    parsed = parse_manifest(text)
    return parsed.tool_name(next(tool for tool in parsed.tools if tool.id == tool_id))
