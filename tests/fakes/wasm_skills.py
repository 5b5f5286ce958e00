"""Skills that use what they are granted: a few tools in one module of text form, and a short way to put them in use."""

from typing import Any

from fakes.gateway_harness import GatewayHarness
from fakes.skill_harness import ACTOR, PUBLISHER, SKILL, archive, key
from fakes.wasm_guests import ALLOC, PACK, imported, text_at, wasm
from palyra.skills.registry.records import SkillVersion

TOOL = f"skill.{SKILL}.add"
ECHO_SKILL = f"""(module (memory (export "memory") 2 4) {ALLOC} {PACK}
  (func (export "run") (param i32 i32 i32 i32) (result i64) (call $pack (local.get 2) (local.get 3))))"""


def status_module(body: str, *, imports: str = "", data: str = "") -> bytes:
    """A module that answers ``{{"s": N}}`` with the number that ``body`` leaves, written as four digits and a sign."""
    return wasm(
        f"""(module {imports} (memory (export "memory") 2 4) {data} {ALLOC} {PACK}
  {text_at(2048, '{"s":"+0000"}')}
  (func $digit (param $place i32) (param $n i32)
    (i32.store8 (local.get $place) (i32.add (i32.const 48) (i32.rem_u (local.get $n) (i32.const 10)))))
  (func $answer (param $n i32) (result i64)
    (if (i32.lt_s (local.get $n) (i32.const 0))
      (then (i32.store8 (i32.const 2054) (i32.const 45)) (local.set $n (i32.sub (i32.const 0) (local.get $n)))))
    (call $digit (i32.const 2058) (local.get $n))
    (call $digit (i32.const 2057) (i32.div_u (local.get $n) (i32.const 10)))
    (call $digit (i32.const 2056) (i32.div_u (local.get $n) (i32.const 100)))
    (call $digit (i32.const 2055) (i32.div_u (local.get $n) (i32.const 1000)))
    (call $pack (i32.const 2048) (i32.const 13)))
  (func (export "run") (param i32 i32 i32 i32) (result i64) (call $answer {body})))"""
    )


def text_module(body: str, *, imports: str = "", data: str = "") -> bytes:
    """A module that answers ``{{"t": "..."}}`` with the last result's text; ``body`` leaves the result's length, or a
    negative status, which makes the answer that of ``status_module``."""
    return wasm(
        f"""(module {imports} {imported("result-read", 3)} (memory (export "memory") 4 8) {data} {ALLOC} {PACK}
  {text_at(2048, '{"s":"-00"}')} {text_at(65536, '{"t":"')}
  (func $failed (param $n i32) (result i64)
    (local.set $n (i32.sub (i32.const 0) (local.get $n)))
    (i32.store8 (i32.const 2055) (i32.add (i32.const 48) (i32.div_u (local.get $n) (i32.const 10))))
    (i32.store8 (i32.const 2056) (i32.add (i32.const 48) (i32.rem_u (local.get $n) (i32.const 10))))
    (call $pack (i32.const 2048) (i32.const 11)))
  (func (export "run") (param i32 i32 i32 i32) (result i64) (local $n i32)
    (local.set $n {body})
    (if (i32.lt_s (local.get $n) (i32.const 0)) (then (return (call $failed (local.get $n)))))
    (drop (call $result-read (i32.const 0) (i32.const 65542) (local.get $n)))
    (i32.store16 (i32.add (i32.const 65542) (local.get $n)) (i32.const 0x7d22))
    (call $pack (i32.const 65536) (i32.add (local.get $n) (i32.const 8)))))"""
    )


async def put_in_use(
    harness: GatewayHarness, version: str = "1.0.0", *, module: bytes | None = None, **options: Any
) -> SkillVersion:
    """Trusted, installed, approved."""
    registry = harness.gateway.skills
    await registry.trust_publisher(PUBLISHER, key(PUBLISHER).public_key(), actor=ACTOR)
    installed = await registry.install(
        archive(version, modules={"main.wasm": module or wasm(ECHO_SKILL)}, **options), actor=ACTOR
    )
    return await registry.approve(installed.skill_id, version, installed.digest, actor=ACTOR)
