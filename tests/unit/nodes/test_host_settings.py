import msgspec
import pytest

from palyra.config.setting_types import InvalidSetting
from palyra.daemon.settings import Settings, check_together
from palyra.nodes.agent.settings import NodeHostSettings


def test_a_device_asks_before_it_opens_addresses_unless_told_otherwise() -> None:
    assert NodeHostSettings().ask == ("open_url",) and NodeHostSettings().commands == {}


def test_a_command_that_cannot_work_is_said_when_settings_are_read() -> None:
    tree = {"node": {"commands": {"lamp": {"argv": ["lamp", "--to={state}"]}}}}
    with pytest.raises(InvalidSetting, match=r"node\.commands"):
        check_together(msgspec.convert(tree, Settings))
