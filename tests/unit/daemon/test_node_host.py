"""The node host joined: one at a time, and what its folder tells."""

from pathlib import Path

import pytest

from palyra.config.state_dir import StateDir
from palyra.daemon.node_agent import NodeHost, leave, open_folder, status_of
from palyra.daemon.settings import Settings
from palyra.errors import PalyraError


class Nobody:
    async def allows(self, capability: str, shown_input: str) -> bool:
        return False

    def notify(self, title: str, text: str) -> bool:
        return False

    def tell(self, text: str) -> None:
        return None


async def test_a_second_host_and_forgetting_under_a_running_one_are_refused(tmp_path: Path) -> None:
    state = StateDir.open(tmp_path / "state")
    first = open_folder(state)
    first.lock()
    assert status_of(state) == {"paired": False, "running": True}
    with pytest.raises(PalyraError) as caught:
        await NodeHost(Settings(), state, Nobody()).run(None, ())
    assert caught.value.code == "nodes.host_running"
    with pytest.raises(PalyraError) as caught:
        await leave(state, forget_only=True)
    assert caught.value.code == "nodes.host_running"
    first.unlock()
    with pytest.raises(PalyraError) as caught:
        await NodeHost(Settings(), state, Nobody()).run(None, ())
    assert caught.value.code == "nodes.not_paired"
    assert not open_folder(state).is_locked(), "it lets go of its folder"
