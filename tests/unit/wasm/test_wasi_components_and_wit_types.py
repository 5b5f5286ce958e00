"""Preview 2, as a component meets it, and the types functions are compared by."""

import pytest
import wasmtime
from wasmtime import component as wit

from fakes.wasm_guests import RETURN_INPUT, component, open_runtime, wasm
from palyra.wasm.domain.grants import CapabilityGrantSet
from palyra.wasm.domain.outcome import LinkFailed, Trapped
from palyra.wasm.engine.config import make_engine
from palyra.wasm.host.component_guest import TypeTooLarge, function_text, shape

CANON = '(memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))'
STREAMS = """
  (import "wasi:io/error@0.2.3" (instance $errors (export "error" (type (sub resource)))))
  (alias export $errors "error" (type $error))
  (import "wasi:io/streams@0.2.3" (instance $streams
    (alias outer 1 $error (type $error1)) (export "error" (type $error (eq $error1)))
    (export "output-stream" (type $out (sub resource)))
    (type $failure' (variant (case "last-operation-failed" (own $error)) (case "closed")))
    (export "stream-error" (type $failure (eq $failure')))
    (export "[method]output-stream.blocking-write-and-flush" (func (param "self" (borrow $out))
      (param "contents" (list u8)) (result (result (error $failure)))))))
  (alias export $streams "output-stream" (type $out))
  (import "wasi:cli/stdout@0.2.3" (instance $stdout (alias outer 1 $out (type $out1))
    (export "output-stream" (type $out (eq $out1))) (export "get-stdout" (func (result (own $out))))))
  (import "wasi:cli/exit@0.2.3" (instance $exit (export "exit" (func (param "status" (result))))))
  (import "wasi:clocks/wall-clock@0.2.3" (instance $wall
    (type $d' (record (field "seconds" u64) (field "nanoseconds" u32))) (export "datetime" (type $d (eq $d')))
    (export "now" (func (result $d)))))
  (import "wasi:random/random@0.2.3" (instance $random (export "get-random-bytes" (func (param "len" u64)
    (result (list u8)))) (export "get-random-u64" (func (result u64)))))
  (import "wasi:filesystem/preopens@0.2.3" (instance $files (export "descriptor" (type $desc (sub resource)))
    (export "get-directories" (func (result (list (tuple (own $desc) string)))))))
  (import "wasi:sockets/ip-name-lookup@0.2.3" (instance $dns (export "resolve" (func (result u32)))))
"""
LOWERED = f"""
  (core func $get (canon lower (func $stdout "get-stdout")))
  (core func $write (canon lower (func $streams "[method]output-stream.blocking-write-and-flush") {CANON}))
  (core func $exit (canon lower (func $exit "exit")))
  (core func $now (canon lower (func $wall "now") {CANON}))
  (core func $bytes (canon lower (func $random "get-random-bytes") {CANON}))
  (core func $number (canon lower (func $random "get-random-u64")))
  (core func $dirs (canon lower (func $files "get-directories") {CANON}))
  (core func $resolve (canon lower (func $dns "resolve")))
"""
CORE = """
  (import "w" "get" (func $get (result i32))) (import "w" "write" (func $write (param i32 i32 i32 i32)))
  (import "w" "exit" (func $exit (param i32))) (import "w" "now" (func $now (param i32)))
  (import "w" "bytes" (func $bytes (param i64 i32))) (import "w" "number" (func $number (result i64)))
  (import "w" "dirs" (func $dirs (param i32))) (import "w" "resolve" (func $resolve (result i32)))
"""
GIVEN = (
    '(with "w" (instance '
    + " ".join(
        f'(export "{n}" (func ${n}))' for n in ("get", "write", "exit", "now", "bytes", "number", "dirs", "resolve")
    )
    + "))"
)


async def _run(tmp_path, body, **grants):
    guest = component(body, imports=STREAMS, lowered=LOWERED, core=CORE, given=GIVEN)
    async with open_runtime(tmp_path) as runtime:
        return await runtime.run(await runtime.compile(guest), input=b"printed\n", grants=CapabilityGrantSet(**grants))


async def test_a_component_prints_into_the_log_and_finds_no_files(tmp_path):
    body = """(call $write (call $get) (local.get $at) (local.get $length) (i32.const 1024))
      (if (i32.load8_u (i32.const 1024)) (then unreachable))
      (call $dirs (i32.const 1024)) (if (i32.load (i32.const 1028)) (then unreachable))"""
    outcome = await _run(tmp_path, body + RETURN_INPUT)
    assert [(line.level, line.text) for line in outcome.logs] == [("info", "printed")]


async def test_its_clock_and_its_random_bytes_are_the_grants(tmp_path):
    body = """(call $now (i32.const 1024))
      (if (i64.ne (i64.load (i32.const 1024)) (i64.const 1700000000)) (then unreachable))
      (call $bytes (i64.const 8) (i32.const 1024))
      (i64.store (i32.const 2048) (i64.xor (call $number) (i64.load (i32.load (i32.const 1024)))))
      (i64.store (i32.const 2048) (i64.and (i64.load (i32.const 2048)) (i64.const 0x1f1f1f1f1f1f1f1f)))
      (i64.store (i32.const 2048) (i64.or (i64.load (i32.const 2048)) (i64.const 0x4040404040404040)))
      (i32.store (i32.const 16) (i32.const 0)) (i32.store (i32.const 20) (i32.const 2048))
      (i32.store (i32.const 24) (i32.const 8)) (i32.const 16)"""
    outputs = [
        (await _run(tmp_path, body, clock_ms=1_700_000_000_999, random_seed=seed)).output for seed in (b"a", b"a", b"b")
    ]
    assert outputs[0] == outputs[1] != outputs[2]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("(call $exit (i32.const 1))", "ended itself"),
        ("(drop (call $resolve))", "resolve"),
        ("(call $bytes (i64.const -1) (i32.const 0))", "random"),
    ],
)
async def test_exit_missing_functions_and_greed_end_the_guest(tmp_path, body, said):
    with pytest.raises(Trapped, match=said):
        await _run(tmp_path, body + RETURN_INPUT)


@pytest.mark.parametrize("version", ["0.1.0", "0.3.0", "1.0.0"])
async def test_other_versions_of_wasi_do_not_link(tmp_path, version):
    async with open_runtime(tmp_path) as runtime:
        with pytest.raises(LinkFailed, match=version):
            await runtime.compile(component(RETURN_INPUT, imports=f'(import "wasi:cli/exit@{version}" (instance))'))
        with pytest.raises(LinkFailed, match="get-random-u64"):
            wrong = '(import "wasi:random/random@0.2.0" (instance (export "get-random-u64" (func (result string)))))'
            await runtime.compile(component(RETURN_INPUT, imports=wrong))


def _function(text):
    engine = make_engine()
    made = wit.Component(engine, wasm(f'(component (import "f" (func {text})))'))
    return made.type.imports(engine)["f"].ty


def test_types_as_text():
    kinds = ["bool", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "f32", "f64", "char", "string"]
    text = " ".join(f'(param "p{n}" {kind})' for n, kind in enumerate(kinds))
    assert function_text(_function(text)) == f"({', '.join(kinds)})"
    assert function_text(_function("(result (result (list u8) (error (option (tuple u8 string)))))")) == (
        "() -> result<list<u8>, option<tuple<u8, string>>>"
    )
    deep = "u8"
    for _ in range(12):
        deep = f"(tuple {deep} {deep})"
    with pytest.raises(TypeTooLarge):
        function_text(_function(f'(param "p" {deep})'))


def test_results_are_shaped_as_the_package_wants_them():
    same = _function("(result (result string (error string)))").result
    other = _function("(result (result u32 (error string)))").result
    assert shape(same, wit.Variant("ok", "x")).tag == "ok"
    assert shape(other, wit.Variant("ok", 5)) == 5
    assert shape(other, wit.Variant("err", "bad")) == "bad"
    assert shape(other, "as it is") == "as it is"
    assert wasmtime.WasmtimeError is not None
