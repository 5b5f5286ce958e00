from pathlib import Path

import pytest

from palyra.skills.build.project import (
    MAX_NOTE_BYTES,
    BuildNote,
    BuildPlan,
    inputs_digest,
    note_name,
    parse_build_plan,
    parse_note,
)

PLAN = parse_build_plan(
    b'build_version = 1\nlanguage = "wat"\n[modules."a.wasm"]\nsources = ["src/a.wat", "src/b.wat"]\n'
)
NOTE = BuildNote(inputs="a" * 64, archive="b" * 64)


def digest(
    manifest: bytes = b"m", plan: BuildPlan = PLAN, source: bytes = b"s", assets: dict[str, bytes] | None = None
) -> str:
    return inputs_digest(manifest, plan, sources={"src/a.wat": source, "src/b.wat": b""}, assets=assets or {})


def test_a_note_is_read_as_it_was_written() -> None:
    assert parse_note(NOTE.encoded()) == NOTE
    assert len(NOTE.encoded()) < MAX_NOTE_BYTES


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff",
        b"[" * MAX_NOTE_BYTES,
        NOTE.encoded()[:-1],
        NOTE.encoded().replace(b'"note_version":1', b'"note_version":2'),
        NOTE.encoded().replace(b'"inputs"', b'"other"'),
    ],
)
def test_what_is_no_note_is_none(raw: bytes) -> None:
    assert parse_note(raw) is None


def test_every_input_of_a_build_counts() -> None:
    reordered = parse_build_plan(
        b'build_version = 1\nlanguage = "wat"\n[modules."a.wasm"]\nsources = ["src/b.wat", "src/a.wat"]\n'
    )
    found = {
        digest(),
        digest(b"n"),
        digest(plan=reordered),
        digest(source=b"t"),
        digest(assets={"a": b""}),
        digest(assets={"b": b""}),
        digest(assets={"a": b"x"}),
    }
    assert len(found) == 7
    assert digest() == digest()


def test_every_folder_has_a_note_of_its_own() -> None:
    assert note_name(Path("/a/b")) != note_name(Path("/a/c"))
    assert note_name(Path("/a/b")).startswith("skill-builds/")
