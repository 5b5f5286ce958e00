"""A server of somebody else's with the tools, prompts and resources that the protocol's conformance checks ask for by
name. It runs behind Palyra, in its sandbox. Only the standard library: it is run by the system's Python.

Its argument is the first word of the names, which is what the server is called in the settings: what is `simple.text`
here is `test.simple.text` in Palyra and `test_simple_text` to a client. A file beside it changes what it tells."""

import base64
import json
import pathlib
import struct
import sys
import zlib

CHANGED = pathlib.Path(__file__).resolve().with_name("changed")
RED = b"\x89PNG\r\n\x1a\n"
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
EMPTY = {"type": "object", "properties": {}}
TEXT = {"type": "string"}
NAMES = {
    "test": (
        "simple.text",
        "image.content",
        "audio.content",
        "embedded.resource",
        "multiple.content.types",
        "tool.with.logging",
        "tool.with.progress",
        "error.handling",
        "elicitation",
        "reconnection",
        "sampling",
    ),
    "json": ("schema.2020.12.tool",),
}
PROMPTS = {
    "simple.prompt": (),
    "prompt.with.arguments": ("arg1", "arg2"),
    "prompt.with.embedded.resource": ("resourceUri",),
    "prompt.with.image": (),
}
RESOURCES = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is what the static text resource says."},
    "test://static-binary": {"mimeType": "image/png"},
}
TEMPLATE = "test://template/{id}/data"
ARGUMENTS = {
    "schema.2020.12.tool": SCHEMA,
    "elicitation": {"type": "object", "properties": {"message": TEXT}},
    "sampling": {"type": "object", "properties": {"prompt": TEXT}},
}


def picture() -> str:
    """One red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0\xff\0\0")
    return base64.b64encode(RED + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")).decode()


def sound() -> str:
    """Silence, for a thousandth of a second."""
    data = b"\0" * 16
    head = (
        b"RIFF"
        + struct.pack("<I", 36 + len(data))
        + b"WAVEfmt "
        + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16000, 2, 16)
    )
    return base64.b64encode(head + b"data" + struct.pack("<I", len(data)) + data).decode()


def words(said: str) -> dict:
    return {"type": "text", "text": said}


def image() -> dict:
    return {"type": "image", "data": picture(), "mimeType": "image/png"}


def resource(uri: str) -> dict:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": "text/plain", "text": "what is in it"}}


def call(name: str) -> dict:
    if name == "image.content":
        return {"content": [image()]}
    if name == "audio.content":
        return {"content": [{"type": "audio", "data": sound(), "mimeType": "audio/wav"}]}
    if name == "embedded.resource":
        return {"content": [resource("test://embedded-resource")]}
    if name == "multiple.content.types":
        return {"content": [words("mixed"), image(), resource("test://mixed-content-resource")]}
    if name == "error.handling":
        return {"content": [words("This tool fails on purpose")], "isError": True}
    return {"content": [words(f"This is the answer of {name}")]}


def prompt(name: str, given: dict) -> list:
    said = [{"role": "user", "content": words(f"This is {name} with {given}")}]
    if name == "prompt.with.embedded.resource":
        said.insert(0, {"role": "user", "content": resource(given["resourceUri"])})
    if name == "prompt.with.image":
        said.insert(0, {"role": "user", "content": image()})
    return said


def description(name: str) -> str:
    return f"Says {name}{', and something else' if CHANGED.exists() else ''}."


def read(uri: str) -> dict:
    if uri == "test://static-binary":
        return {"uri": uri, "blob": picture(), **RESOURCES[uri]}
    if uri in RESOURCES:
        return {"uri": uri, **RESOURCES[uri]}
    number = uri.removeprefix("test://template/").removesuffix("/data")
    return {"uri": uri, "mimeType": "application/json", "text": json.dumps({"id": number})}


def other(method: str, params: dict) -> "dict | None":
    if method == "prompts/list":
        return {
            "prompts": [
                {
                    "name": name,
                    "description": description(name),
                    "arguments": [{"name": each, "required": True} for each in arguments],
                }
                for name, arguments in PROMPTS.items()
            ]
        }
    if method == "prompts/get":
        return {"messages": prompt(params["name"], params.get("arguments", {}))}
    if method == "resources/list":
        return {"resources": [{"uri": uri, "name": uri.removeprefix("test://")} for uri in RESOURCES]}
    if method == "resources/templates/list":
        return {"resourceTemplates": [{"uriTemplate": TEMPLATE, "name": "data"}]}
    if method == "resources/read":
        return {"contents": [read(params["uri"])]}
    return None


def main(first_word: str) -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked or "method" not in asked:
            continue
        answer = {"jsonrpc": "2.0", "id": asked["id"]}
        if asked["method"] == "initialize":
            answer["result"] = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
                "serverInfo": {"name": "conformance", "version": "1"},
            }
        elif asked["method"] == "tools/list":
            answer["result"] = {
                "tools": [
                    {"name": name, "description": f"Does {name}.", "inputSchema": ARGUMENTS.get(name, EMPTY)}
                    for name in NAMES[first_word]
                ]
            }
        elif asked["method"] == "tools/call":
            answer["result"] = call(asked["params"]["name"])
        else:
            found = other(asked["method"], asked.get("params", {}))
            answer.update(
                {"error": {"code": -32601, "message": "no such method"}} if found is None else {"result": found}
            )
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
