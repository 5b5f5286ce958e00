"""Each setting fills exactly the set that the policy schema says it fills."""

from typing import Any

import msgspec
import pytest

from palyra.daemon.pipeline_wiring import directory_of
from palyra.daemon.settings import Settings
from palyra.ids import Principal
from palyra.policy.request import Entity


def sets_of(entity: Entity) -> set[str]:
    return {f"{parent.type}::{parent.id}" for parent in entity.parents}


def settings(**sections: Any) -> Settings:
    return msgspec.convert(sections, Settings)


def test_the_defaults_let_agents_use_the_harmless_and_the_file_tools_through_the_known_doors() -> None:
    directory = directory_of(settings())
    assert sets_of(directory.principal(Principal.parse("agent:bot"))) == {"Group::allowed"}
    assert sets_of(directory.principal(Principal.parse("user:operator"))) == {"Group::allowed", "Group::operators"}
    for tool, found in [
        ("echo", {"ToolSet::allowed"}),
        ("fs.write", {"ToolSet::allowed"}),
        ("process.run", {"ToolSet::allowed"}),
        ("http.fetch", {"ToolSet::allowed"}),
        ("skill.acme.notes.add", {"ToolSet::allowed"}),
        ("plugin.run", set()),
    ]:
        assert sets_of(directory.tool(tool, frozenset(), True, "builtin")) == found
    assert sets_of(directory.channel("cli")) == {"ChannelSet::allowed"}
    assert sets_of(directory.channel("carrier-pigeon")) == set()


@pytest.mark.parametrize(
    ("section", "key", "member", "found"),
    [
        ("access", "principals", "agent:x", "Group::allowed"),
        ("access", "operators", "user:x", "Group::operators"),
        ("tools", "allowed", "x.y", "ToolSet::allowed"),
        ("tools", "preapproved", "x.y", "ToolSet::preapproved"),
        ("access", "channels", "door", "ChannelSet::allowed"),
    ],
)
def test_one_setting_one_set(section: str, key: str, member: str, found: str) -> None:
    nothing: dict[str, dict[str, Any]] = {
        "access": {"principals": [], "operators": [], "channels": []},
        "tools": {"allowed": [], "preapproved": []},
    }
    nothing[section][key] = [member]
    directory = directory_of(settings(**nothing))
    sets = (
        sets_of(directory.principal(Principal.parse("agent:x")))
        | sets_of(directory.principal(Principal.parse("user:x")))
        | sets_of(directory.tool("x.y", frozenset(), False, "builtin"))
        | sets_of(directory.channel("door"))
    )
    assert sets == {found}


def test_groups_of_ones_own() -> None:
    directory = directory_of(settings(access={"principals": [], "groups": {"reviewers": ["user:a*"]}}))
    assert sets_of(directory.principal(Principal.parse("user:alice"))) == {"Group::reviewers"}
    assert sets_of(directory.principal(Principal.parse("user:bob"))) == set()
