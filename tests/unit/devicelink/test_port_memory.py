import socket
from pathlib import Path

import pytest

from palyra.config.state_dir import StateDir
from palyra.devicelink.server.listener import PORTS_FILE, ListenerPortTaken, PortMemory, bind_first


def test_a_configured_port_is_the_only_one_and_a_kept_one_is_tried_first(tmp_path: Path) -> None:
    memory = PortMemory(StateDir.open(tmp_path / "state"))
    assert memory.candidates("port", 0) == (0,) and memory.candidates("port", 7) == (7,)
    memory.keep("port", 1234)
    memory.keep("pairing_port", 99)
    assert memory.candidates("port", 0) == (1234, 0) and memory.candidates("pairing_port", 0) == (99, 0)
    assert memory.candidates("port", 7) == (7,)
    memory.keep("port", 5)
    assert memory.candidates("port", 0) == (5, 0) and memory.candidates("pairing_port", 0) == (99, 0)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"port":"x"}', b'{"port":true}', b'{"port":70000}', b"\xff"])
def test_a_file_that_makes_no_sense_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    state = StateDir.open(tmp_path / "state")
    state.write_atomic(PORTS_FILE, content)
    assert PortMemory(state).candidates("port", 0) == (0,)


def test_the_first_free_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with bind_first("127.0.0.1", (port, 0)) as listener:
            assert listener.getsockname()[1] not in (0, port)
        with pytest.raises(ListenerPortTaken, match=str(port)):
            bind_first("127.0.0.1", (port,))
    with pytest.raises(ListenerPortTaken):
        bind_first("no such host.invalid", (0,))
