import msgspec
import pytest

from palyra.executors.builtin import ECHO, SLEEP
from palyra.json_schema import SchemaMismatch
from palyra.pipeline.catalog import Catalog
from palyra.pipeline.domain.call import UnknownTool


def test_tools_are_listed_by_name_and_found() -> None:
    catalog = Catalog([SLEEP, ECHO])
    assert [str(spec.name) for spec in catalog.specs()] == ["echo", "sleep"]
    assert catalog.entry("sleep").spec is SLEEP


@pytest.mark.parametrize("name", ["", "ECHO", "echo ", "echo\0", "no.such", "x" * 100_000])
def test_a_name_that_is_not_exactly_a_tools_is_unknown_and_quoted_in_bounds(name: str) -> None:
    with pytest.raises(UnknownTool) as caught:
        Catalog([ECHO]).entry(name)
    assert len(caught.value.message) < 300 and len(caught.value.details["tool"]) <= 128


def test_two_tools_of_one_name_are_a_mistake_of_the_build() -> None:
    with pytest.raises(ValueError, match="two tools are named echo"):
        Catalog([ECHO, msgspec.structs.replace(SLEEP, name=ECHO.name)])


def test_a_schema_is_compiled_once_and_checks_both_ways() -> None:
    entry = Catalog([ECHO]).entry("echo")
    assert entry.input_check is entry.input_check and entry.output_check is entry.output_check
    entry.input_check.require({"text": "x"})
    for check, wrong in [(entry.input_check, {"text": 1}), (entry.output_check, {"text": "x", "more": 1})]:
        with pytest.raises(SchemaMismatch):
            check.require(wrong)


def test_a_group_is_replaced_whole_and_what_is_fixed_stays() -> None:
    catalog = Catalog([ECHO])
    catalog.replace_group("more", [SLEEP])
    check = catalog.entry("sleep").input_check
    assert "sleep" in catalog and [str(spec.name) for spec in catalog.specs()] == ["echo", "sleep"]
    catalog.replace_group("more", [SLEEP])
    assert catalog.entry("sleep").input_check is check
    with pytest.raises(ValueError, match="two tools are named echo"):
        catalog.replace_group("more", [ECHO])
    assert "sleep" in catalog
    catalog.replace_group("more", [])
    assert "sleep" not in catalog and catalog.entry("echo").spec is ECHO


def test_a_skill_that_is_not_in_use_is_told_of() -> None:
    with pytest.raises(UnknownTool) as caught:
        Catalog([]).entry("skill.acme.notes.add")
    assert "palyra skill list" in caught.value.hint
