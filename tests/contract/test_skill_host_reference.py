"""docs/reference/skill-host.md has every host function, every status and both names of the interface."""

import re
from pathlib import Path

from palyra.wasm.domain.host_interface import HOST_FUNCTIONS, HOST_INTERFACE, IMPORT_MODULE, LOG_LEVELS, Status

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "skill-host.md").read_text(encoding="utf-8")
ROWS = [line.strip("|").split("|") for line in TEXT.splitlines() if line.startswith("|")]


def test_every_function_is_there_with_as_many_arguments_as_it_takes() -> None:
    said = {
        name: core.count(",") + 1 if re.search(r"\(\w", core) else 0
        for first, core, *_ in (row for row in ROWS if len(row) == 3)
        for name in re.findall(r"`([a-z]+-[a-z]+|log|fail)`", first)
    }
    there = {function.name: len(re.findall("i32", function.core.split("->")[0])) for function in HOST_FUNCTIONS}
    assert {name: said.get(name) for name in there} == there


def test_every_status_is_there() -> None:
    said = {(int(number), name.strip(" `")) for number, name, _ in ROWS if re.fullmatch(r" -?\d+ ", number)}
    assert said == {(status.value, status.wit_name if status else "") for status in Status}


def test_interfaces_and_levels_are_named_as_they_are() -> None:
    assert f"`{HOST_INTERFACE}`" in TEXT and f"`{IMPORT_MODULE}`" in TEXT
    assert ", ".join(f"{number} {level}" for number, level in enumerate(LOG_LEVELS)) in TEXT
