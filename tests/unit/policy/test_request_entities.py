"""Sets come from patterns; names survive being written into Cedar."""

import json

import cedarpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.ids import Principal
from palyra.policy.request import (
    Entity,
    EntityDirectory,
    EntityRef,
    ReservedGroup,
    cedar_string,
    glob_literal,
    name_of_principal,
)


def parents(entity: Entity) -> set[str]:
    return {str(parent) for parent in entity.parents}


def test_principals_are_in_the_groups_whose_patterns_match(directory: EntityDirectory) -> None:
    assert parents(directory.principal(Principal.parse("agent:w1"))) == {'Group::"allowed"', 'Group::"writers"'}
    assert parents(directory.principal(Principal.parse("user:operator"))) == {'Group::"allowed"', 'Group::"operators"'}


def test_a_user_is_not_an_agent_of_the_same_name(directory: EntityDirectory) -> None:
    assert 'Group::"writers"' not in parents(directory.principal(Principal.parse("user:w1")))


def test_tools_and_channels(directory: EntityDirectory) -> None:
    tool = directory.tool("fs.list", frozenset({"b", "a"}), True, "c")
    assert tool.attrs == {"capabilities": ["a", "b"], "sensitive": True, "tier": "c"}
    assert parents(tool) == {'ToolSet::"allowed"', 'ToolSet::"preapproved"'}
    assert parents(directory.channel("irc")) == set()


def test_an_empty_directory_allows_nothing() -> None:
    empty = EntityDirectory.from_lists()
    assert empty.principal(Principal.parse("agent:x")).parents == ()
    assert empty.tool("x", frozenset(), False, "a").parents == ()
    assert EntityDirectory().channel("cli").parents == ()


def test_patterns_match_whole_names_only() -> None:
    directory = EntityDirectory.from_lists(tools=("fs.*", "echo"))
    for name in ("xfs.read", "echo2", "echo\n", "\necho", "fs"):
        assert directory.tool(name, frozenset(), False, "a").parents == ()


@pytest.mark.parametrize("name", ["allowed", "operators"])
def test_groups_with_a_meaning_of_their_own_cannot_be_redefined(name: str) -> None:
    with pytest.raises(ReservedGroup):
        EntityDirectory.from_lists(groups={name: ("agent:evil",)})


def test_placing_an_entity_replaces_its_sets_and_keeps_its_attributes(directory: EntityDirectory) -> None:
    tool = Entity(uid=EntityRef("Tool", "echo"), attrs={"tier": "a"}, parents=(EntityRef("ToolSet", "old"),))
    placed = directory.placed(tool)
    assert parents(placed) == {'ToolSet::"allowed"'}
    assert placed.attrs == tool.attrs
    assert parents(directory.placed(directory.channel("cli"))) == {'ChannelSet::"allowed"'}
    assert directory.placed(directory.principal(Principal.parse("agent:w"))) == directory.principal(
        Principal.parse("agent:w")
    )
    host = Entity(uid=EntityRef("Host", "h"))
    assert directory.placed(host) is host


def test_principals_are_named_as_on_the_command_line() -> None:
    assert name_of_principal(EntityRef("Agent", "bot")) == "agent:bot"
    assert name_of_principal(EntityRef("Tool", "x")) == 'Tool::"x"'


@given(st.text())
def test_cedar_reads_back_every_id_we_write(name: str) -> None:
    text = f"permit (principal == {EntityRef('Agent', name)}, action, resource);"
    (policy,) = json.loads(cedarpy.policies_to_json_str(text))["staticPolicies"].values()
    assert policy["principal"]["entity"] == {"type": "Agent", "id": name}
    assert "\n" not in cedar_string(name)


@given(st.text())
def test_a_literal_pattern_matches_its_name_and_nothing_longer(name: str) -> None:
    directory = EntityDirectory.from_lists(channels=(glob_literal(name),))
    assert directory.channel(name).parents
    assert not directory.channel(name + "x").parents
