from typing import Any

import pytest

from fakes.skill_harness import manifest
from palyra.skills.package.configuration import ConfigurationRefused, effective_configuration, refuse_secrets
from palyra.skills.package.manifest import SkillManifest, parse_manifest

CONFIGURED = """
[operator.configuration]
schema = { type = "object", properties = { a = { type = "integer" }, b = { type = "string" } }, \
required = ["a", "b"], additionalProperties = false }
defaults = { a = 1 }
"""


def skill(more: str = CONFIGURED) -> SkillManifest:
    return parse_manifest(manifest(more=more))


def test_defaults_are_filled_in_and_what_was_chosen_wins() -> None:
    assert effective_configuration(skill(), {"b": "x"}) == {"a": 1, "b": "x"}
    assert effective_configuration(skill(), {"b": "x", "a": 2}) == {"a": 2, "b": "x"}
    assert effective_configuration(skill(""), {}) == {}


@pytest.mark.parametrize("chosen", [{}, {"b": 1}, {"b": "x", "c": 1}, {"b": "x" * 70_000}])
def test_what_does_not_fit_is_refused(chosen: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationRefused):
        effective_configuration(skill(), chosen)


def test_a_skill_without_a_schema_takes_none() -> None:
    with pytest.raises(ConfigurationRefused, match="nothing to configure"):
        effective_configuration(skill(""), {"a": 1})


@pytest.mark.parametrize("chosen", [{"api_key": "x"}, {"deep": [{"password": "x"}]}])
def test_secrets_belong_into_the_vault(chosen: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationRefused, match="vault"):
        refuse_secrets(chosen)
    refuse_secrets({"max_tokens": 5, "name": "x"})
