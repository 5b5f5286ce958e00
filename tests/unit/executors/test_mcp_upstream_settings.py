import msgspec
import pytest

from palyra.config.setting_types import InvalidSetting
from palyra.daemon.settings import Settings, check_together
from palyra.executors.mcp_upstream.settings import BadServer, ServerPlan
from palyra.executors.tool_set import builtin_catalog


def test_deciders_are_principals() -> None:
    good = msgspec.convert({"mcp": {"deciders": {"agent:x": "user:me"}}}, Settings)
    check_together(good)
    with pytest.raises(InvalidSetting, match=r"mcp\.deciders"):
        check_together(msgspec.convert({"mcp": {"deciders": {"agent:x": "me"}}}, Settings))


@pytest.mark.parametrize("word", sorted({spec.name.partition(".")[0] for spec in builtin_catalog().specs()}))
def test_no_server_takes_the_first_word_of_a_tool_of_this_build(word: str) -> None:
    with pytest.raises(BadServer, match="cannot be the name of a server"):
        ServerPlan(command="/bin/true").check(word)
