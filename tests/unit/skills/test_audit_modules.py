import pytest

from fakes.skill_harness import ECHO, manifest, wat
from palyra.skills.package.capabilities import WasiGroup
from palyra.skills.package.manifest import parse_manifest
from palyra.skills.trust.module_audit import ModuleUse, audit_module
from palyra.wasm.domain.grants import Capability

MANIFEST = parse_manifest(manifest())
HOST = "palyra:plugins/host-capabilities@0.1.0"


def rules(text: str, more: str = "") -> list[str]:
    parsed = parse_manifest(manifest(more=more))
    return sorted(one.id for one in audit_module("main.wasm", wat(text), parsed)[1])


def use(imports: str) -> ModuleUse:
    return audit_module("main.wasm", wat(ECHO.replace("(module", f"(module {imports}", 1)), MANIFEST)[0]


def inside(text: str) -> str:
    return ECHO.replace("(module", f"(module {text}", 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ECHO, []),
        ('(module (func (export "run") (result i32) (i32.const 0)))', []),
        ("(module)", ["entrypoint-missing"]),
        ('(module (memory (export "run") 1 1))', ["entrypoint-missing"]),
        ('(module (func (export "run") (param i64)))', ["entrypoint-type"]),
        (ECHO.replace('"palyra_alloc"', '"malloc"'), ["entrypoint-type"]),
        (ECHO.replace('(export "memory") ', ""), ["entrypoint-type"]),
        (inside('(import "env" "abort" (func))'), ["unknown-import"]),
        (inside(f'(import "{HOST}" "format-disk" (func))'), ["unknown-import"]),
        (inside(f'(import "{HOST}" "log" (func (param i64)))'), ["unknown-import"]),
        (inside(f'(import "{HOST}" "log" (global i32))'), ["unknown-import"]),
        (inside('(import "wasi_snapshot_preview1" "memory" (global i32))'), ["unknown-import"]),
        (inside("(func $s) (start $s)"), ["start-function"]),
        (inside("(memory 1 1)"), ["multiple-memories"]),
        (ECHO.replace("1 4", "1"), ["memory-unbounded"]),
        (ECHO.replace("1 4", "1025 2000"), ["memory-excess"]),
        (ECHO.replace("1 4", "1 4 shared"), ["shared-memory"]),
        (inside("(table 100001 funcref)"), ["table-excess"]),
        (inside('(table (export "__indirect_function_table") 1 funcref)'), ["dangerous-export"]),
        (inside('(func (export "_start"))'), ["dangerous-export"]),
        (inside("".join(f'(func (export "f{n}"))' for n in range(62))), ["many-exports"]),
    ],
)
def test_each_rule_finds_its_own(text: str, expected: list[str]) -> None:
    assert rules(text) == expected


def test_names_in_the_evidence_can_be_read() -> None:
    hostile = '(table (export "a\\u{202e}b\\1b[2J") 1 funcref)'
    (one,) = audit_module("main.wasm", wat(inside(hostile)), MANIFEST)[1]
    assert one.id == "dangerous-export" and one.evidence == "it exports a\\u{202e}b\\u{1b}[2J"


def test_the_declared_form_is_the_form_it_has() -> None:
    assert rules(ECHO, '\n[compat]\nabi = "core"\n') == []
    assert rules(ECHO, '\n[compat]\nabi = "component"\n') == ["module-abi"]


COMPONENT = """(component
  (core module $m (func (export "run") (result i32) (i32.const 0)))
  (core instance $i (instantiate $m))
  (func $run (result u32) (canon lift (core func $i "run")))
  (export "run" (func $run)))"""


def test_components_are_read_too() -> None:
    assert rules(COMPONENT, '\n[compat]\nabi = "component"\n') == []
    assert rules("(component)") == ["entrypoint-missing"]
    assert rules(COMPONENT.replace("(component", '(component (import "evil:net/sockets" (instance))', 1)) == [
        "unknown-import"
    ]
    with_host = COMPONENT.replace("(component", '(component (import "palyra:skill/host@0.1.0" (instance))', 1)
    assert rules(with_host) == []
    assert audit_module("main.wasm", wat(with_host), MANIFEST)[0].is_opaque
    with_wasi = COMPONENT.replace("(component", '(component (import "wasi:clocks/wall-clock@0.2.0" (instance))', 1)
    assert audit_module("main.wasm", wat(with_wasi), MANIFEST)[0].wasi == {WasiGroup.CLOCKS}


def test_what_a_module_can_reach_for() -> None:
    reaching = use(f'(import "{HOST}" "storage-get" (func (param i32 i32 i32) (result i32)))')
    assert reaching.capabilities == {Capability.STORAGE} and not reaching.is_opaque
    assert use(f'(import "{HOST}" "http-count" (func (result i32)))').capabilities == frozenset()
    names = ("fd_write", "path_open", "sock_send", "random_get", "args_get", "proc_exit", "fd_readdir")
    wasi = use("".join(f'(import "wasi_snapshot_preview1" "{name}" (func))' for name in names)).wasi
    assert wasi == set(WasiGroup) - {WasiGroup.CLOCKS}
