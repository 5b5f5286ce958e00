import msgspec
import pytest

from palyra.config.setting_types import InvalidSetting
from palyra.daemon.settings import Settings, check_together


def test_deciders_are_principals() -> None:
    good = msgspec.convert({"mcp": {"deciders": {"agent:x": "user:me"}}}, Settings)
    check_together(good)
    with pytest.raises(InvalidSetting, match=r"mcp\.deciders"):
        check_together(msgspec.convert({"mcp": {"deciders": {"agent:x": "me"}}}, Settings))
