import json
from typing import Any

import pytest

from palyra.nodes.agent.offered import BUILT_IN
from palyra.nodes.domain.capability import (
    MAX_CHOICES,
    BadInventory,
    CostlySchema,
    accept_inventory,
    require_input,
    require_plain,
)
from palyra.nodes.domain.records import DeviceCapabilityView


def doubling(depth: int) -> dict[str, Any]:
    """Each definition asks for the next one twice: the check takes two to the power of ``depth`` steps."""
    inner = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(depth)}
    return {"$defs": {**inner, f"d{depth}": {"type": "object"}}, "$ref": "#/$defs/d0"}


ALTERNATIVES = {"anyOf": [{"properties": {"a": {"$ref": "#"}}, "required": [name]} for name in ("y", "z")]}


@pytest.mark.parametrize(
    "bomb",
    [
        doubling(60),
        ALTERNATIVES,
        {"type": "object", "properties": {"a": {"pattern": "(\\w{1000}){50}"}}},
        {"type": "object", "properties": {"a": {"items": {"uniqueItems": True}}}},
        {"patternProperties": {"(a+)+": {}}},
        {"additionalProperties": {"type": "string"}},
        {"items": {"enum": list(range(MAX_CHOICES + 1))}},
        {"$dynamicRef": "#x"},
        {"not": {}},
    ],
)
def test_a_schema_that_could_take_the_daemons_time_is_refused_before_it_is_compiled(bomb: dict[str, Any]) -> None:
    with pytest.raises(CostlySchema):
        require_plain(bomb)
    reported = DeviceCapabilityView(name="bomb", input_schema_json=json.dumps(bomb))
    with pytest.raises(BadInventory):
        accept_inventory([reported], [])


def test_what_honest_devices_report_is_plain() -> None:
    for offer in BUILT_IN:
        require_plain(offer.input_schema)
    nested = {"type": "array", "items": {"type": "object", "properties": {"n": {"enum": [1, 2], "default": 1}}}}
    require_plain({"$schema": "x", "type": "object", "properties": {"a": nested}, "additionalProperties": False})


def test_a_large_input_against_a_plain_schema_is_checked_and_refused_by_name() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"enum": list(range(MAX_CHOICES))}}}}
    (accepted,) = accept_inventory([DeviceCapabilityView(name="a", input_schema_json=json.dumps(schema))], [])
    require_input(accepted, {"a": [MAX_CHOICES - 1] * 10_000})


def test_properties_may_have_the_names_of_keywords() -> None:
    require_plain({"type": "object", "properties": {"$ref": {"type": "string"}, "pattern": {"type": "string"}}})
