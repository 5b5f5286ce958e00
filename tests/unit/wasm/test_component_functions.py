"""Components and what they can do with handles."""

import re

import pytest

from fakes.wasm_guests import GRANTS, RETURN_INPUT, FakeServices, component, open_runtime
from palyra.wasm.domain.grants import Capability
from palyra.wasm.domain.host_interface import ERROR_NAMES, HOST_INTERFACE, LOG_LEVELS, GuestResponse
from palyra.wasm.domain.outcome import LinkFailed

ERROR = f"(enum {' '.join(f'{chr(34)}{name}{chr(34)}' for name in ERROR_NAMES)})"
LEVEL = f"(enum {' '.join(f'{chr(34)}{name}{chr(34)}' for name in LOG_LEVELS)})"
TYPES = f"""
  (type $error' {ERROR}) (export "error-code" (type $error (eq $error')))
  (type $level' {LEVEL}) (export "level" (type $level (eq $level')))
  (type $header' (record (field "name" string) (field "value" string))) (export "header" (type $header (eq $header')))
  (type $attachment' (record (field "secret" u32) (field "header" string) (field "prefix" string)))
  (export "attachment" (type $attachment (eq $attachment')))
  (type $request' (record (field "method" string) (field "path" string) (field "headers" (list $header))
    (field "body" string) (field "secrets" (list $attachment)))) (export "request" (type $request (eq $request')))
  (type $response' (record (field "status" u16) (field "headers" (list $header)) (field "body" string)
    (field "base64" bool))) (export "response" (type $response (eq $response')))
"""
SIGNATURES = {
    "http-count": ("(result u32)", "(result i32)"),
    "http-handle": ('(param "index" u32) (result (result u32 (error $error)))', "(param i32 i32)"),
    "http-send": ('(param "handle" u32) (param "request" $request) (result (result $response (error $error)))', ""),
    "secret-reveal": ('(param "handle" u32) (result (result string (error $error)))', "(param i32 i32)"),
    "storage-get": (
        '(param "handle" u32) (param "key" string) (result (result string (error $error)))',
        "(param i32 i32 i32 i32)",
    ),
    "storage-put": (
        '(param "handle" u32) (param "key" string) (param "value" string) (result (result (error $error)))',
        "(param i32 i32 i32 i32 i32 i32)",
    ),
    "storage-delete": (
        '(param "handle" u32) (param "key" string) (result (result (error $error)))',
        "(param i32 i32 i32 i32)",
    ),
    "storage-list": (
        '(param "handle" u32) (param "prefix" string) (result (result (list string) (error $error)))',
        "(param i32 i32 i32 i32)",
    ),
    "channel-send": (
        '(param "handle" u32) (param "text" string) (result (result (error $error)))',
        "(param i32 i32 i32 i32)",
    ),
    "log": ('(param "level" $level) (param "text" string)', "(param i32 i32 i32)"),
}


def guest(body, *names, types=TYPES, signatures=SIGNATURES):
    """Build a component that imports functions of the host and calls them as ``$name`` in its body."""
    functions = " ".join(f'(export "{name}" (func {signatures[name][0]}))' for name in names)
    canon = '(memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))'
    return component(
        body,
        imports=f'(import "{HOST_INTERFACE}" (instance $host {types} {functions}))',
        lowered=" ".join(f'(core func ${name} (canon lower (func $host "{name}") {canon}))' for name in names),
        core=" ".join(f'(import "host" "{name}" (func ${name} {SIGNATURES[name][1]}))' for name in names),
        given='(with "host" (instance ' + " ".join(f'(export "{name}" (func ${name}))' for name in names) + "))",
    )


# Results are written from 1024 on; the text of the last one is logged by its place and length.
def show(at):
    return f"(call $log (i32.const 1) (i32.load (i32.const {at})) (i32.load (i32.const {at + 4})))"


async def run(tmp_path, module, services=None, data=b"{}"):
    async with open_runtime(tmp_path) as runtime:
        return await runtime.run(
            await runtime.compile(module), input=data, grants=GRANTS, services=services or FakeServices()
        )


async def test_counts_handles_and_a_bad_index(tmp_path):
    check = """(if (i32.ne (call $http-count) (i32.const 2)) (then unreachable))
      (call $http-handle (i32.const 1) (i32.const 1024))
      (if (i32.load8_u (i32.const 1024)) (then unreachable))
      (if (i32.ne (i32.load (i32.const 1028)) (i32.const 10001)) (then unreachable))
      (call $http-handle (i32.const 2) (i32.const 1024))
      (if (i32.ne (i32.load8_u (i32.const 1024)) (i32.const 1)) (then unreachable))
      (if (i32.load8_u (i32.const 1028)) (then unreachable))"""
    outcome = await run(tmp_path, guest(check + RETURN_INPUT, "http-count", "http-handle"))
    assert outcome.usage.host_calls == 3


SEND = """
  (i32.store (i32.const 600) (local.get $tool)) (i32.store (i32.const 604) (local.get $tool_length))
  (i32.store (i32.const 608) (local.get $at)) (i32.store (i32.const 612) (local.get $length))
  (i32.store (i32.const 640) (i32.const 20000)) (i32.store (i32.const 644) (local.get $tool))
  (i32.store (i32.const 648) (i32.const 2)) (i32.store (i32.const 652) (local.get $at))
  (i32.store (i32.const 656) (local.get $length))
  (call $http-send (i32.const 10000) (local.get $tool) (local.get $tool_length) (local.get $at) (local.get $length)
    (i32.const 600) (i32.const 1) (local.get $at) (local.get $length) (i32.const 640) (i32.const 1) (i32.const 1024))
"""
# The tool's name is method and header, the input is path, value and body; the secret's header is the first two letters.
SENT = """
  (if (i32.load8_u (i32.const 1024)) (then unreachable))
  (if (i32.ne (i32.load16_u (i32.const 1028)) (i32.const 201)) (then unreachable))
  (i32.store (i32.const 16) (i32.const 0)) (i32.store (i32.const 20) (i32.load (i32.const 1040)))
  (i32.store (i32.const 24) (i32.load (i32.const 1044))) (i32.const 16)
"""
REFUSED = """
  (if (i32.ne (i32.load8_u (i32.const 1024)) (i32.const 1)) (then unreachable))
  (if (i32.ne (i32.load8_u (i32.const 1028)) (i32.const 3)) (then unreachable))
"""


def sender(after):
    canon = '(memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))'
    return component(
        SEND + after,
        imports=f'''(import "{HOST_INTERFACE}" (instance $host {TYPES}
          (export "http-send" (func {SIGNATURES["http-send"][0]}))))''',
        lowered=f'(core func $send (canon lower (func $host "http-send") {canon}))',
        core=f'(import "host" "send" (func $http-send (param {" ".join(["i32"] * 12)})))',
        given='(with "host" (instance (export "send" (func $send))))',
    )


@pytest.mark.parametrize(("body", "shown"), [(b"hello", b"hello"), (b"\xff\x00", b"/wA=")])
async def test_a_request_goes_out_with_its_secret_and_the_answer_comes_back(tmp_path, body, shown):
    services = FakeServices()
    services.response = GuestResponse(status=201, headers=(("x", "y"),), body=body)
    async with open_runtime(tmp_path) as runtime:
        made = await runtime.compile(sender(SENT))
        outcome = await runtime.run(made, tool="POST", input=b"/x", grants=GRANTS, services=services)
    ((_, (grant, request)),) = services.asked
    assert grant.name == "a.example"
    assert (request.method, request.path, request.headers, request.body) == ("POST", "/x", (("POST", "/x"),), b"/x")
    assert [(one.secret.name, one.header, one.prefix) for one in request.secrets] == [("password", "PO", "/x")]
    assert outcome.output == shown


async def test_a_request_that_is_none_is_refused_before_anybody_is_asked(tmp_path):
    services = FakeServices()
    async with open_runtime(tmp_path) as runtime:
        made = await runtime.compile(sender(REFUSED + RETURN_INPUT))
        await runtime.run(made, tool="POST", input=b"no path", grants=GRANTS, services=services)
        await runtime.run(made, tool="CONNECT", input=b"/x", grants=GRANTS, services=services)
    assert services.asked == []


async def test_a_secret_storage_and_a_channel(tmp_path):
    services = FakeServices()
    body = f"""
      (call $secret-reveal (i32.const 20000) (i32.const 1024)) {show(1028)}
      (call $secret-reveal (i32.const 20001) (i32.const 1024))
      (if (i32.ne (i32.load8_u (i32.const 1028)) (i32.const 5)) (then unreachable))
      (call $storage-put (i32.const 30000) (local.get $at) (local.get $length) (local.get $at) (local.get $length)
        (i32.const 1024))
      (if (i32.load8_u (i32.const 1024)) (then unreachable))
      (call $storage-get (i32.const 30000) (local.get $at) (local.get $length) (i32.const 1024)) {show(1028)}
      (call $storage-list (i32.const 30000) (local.get $at) (local.get $length) (i32.const 1024))
      (if (i32.ne (i32.load (i32.const 1032)) (i32.const 1)) (then unreachable))
      (call $storage-delete (i32.const 30000) (local.get $at) (local.get $length) (i32.const 1024))
      (call $storage-get (i32.const 30000) (local.get $at) (local.get $length) (i32.const 1024))
      (if (i32.ne (i32.load8_u (i32.const 1028)) (i32.const 8)) (then unreachable))
      (call $channel-send (i32.const 40000) (local.get $at) (local.get $length) (i32.const 1024))
      {RETURN_INPUT}"""
    names = ("secret-reveal", "storage-put", "storage-get", "storage-list", "storage-delete", "channel-send", "log")
    outcome = await run(tmp_path, guest(body, *names), services, data=b"key")
    assert [line.text for line in outcome.logs] == ["value of password", "key"]
    assert [what for what, _ in services.asked] == ["reveal", "put", "get", "list", "delete", "get", "send"]
    assert services.asked[-1][1][0].kind is Capability.CHANNEL


async def test_a_host_function_under_another_type_does_not_link(tmp_path):
    module = component(
        RETURN_INPUT, imports=f'(import "{HOST_INTERFACE}" (instance (export "http-count" (func (result u64)))))'
    )
    async with open_runtime(tmp_path) as runtime:
        with pytest.raises(LinkFailed, match="u64"):
            await runtime.compile(module)
        with pytest.raises(LinkFailed, match="no function 'rm'"):
            await runtime.compile(
                component(RETURN_INPUT, imports=f'(import "{HOST_INTERFACE}" (instance (export "rm" (func))))')
            )


def test_the_world_in_wit_names_what_the_table_names():
    from importlib.resources import files

    from palyra.wasm.domain.host_interface import WIT_TYPES

    text = files("palyra.wasm").joinpath("wit/palyra-skill.wit").read_text()
    assert set(re.findall(r"^  ([a-z-]+): func\(", text, re.MULTILINE)) == set(WIT_TYPES)
    assert re.search(r"enum error-code \{\s*([^}]*?),?\s*\}", text).group(1).split(", ") == list(ERROR_NAMES)
