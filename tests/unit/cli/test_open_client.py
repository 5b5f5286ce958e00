import json
import os
import socket
from pathlib import Path

import pytest

from fakes.command_line import command_line_in
from fakes.loopback import ScriptedServer, read_request, serving
from fakes.tiny_api import TOKEN, TinyApi
from palyra.cli.invocation import Invocation, open_client, tell_of_newer_settings
from palyra.client import address
from palyra.client.address import ForeignListener


@pytest.fixture
def invocation(tmp_path: Path) -> Invocation:
    command_line_in(tmp_path)
    made = Invocation(environ={})
    made.config_option = tmp_path / "config.toml"
    made.state_dir_option = tmp_path / "state"
    (tmp_path / "state").mkdir(mode=0o700)
    return made


def announce(invocation: Invocation, url: str) -> None:
    (invocation.state_path / "daemon.json").write_text(json.dumps({"url": url, "pid": os.getpid()}))
    (invocation.state_path / "operator.token").write_text(TOKEN)


def test_a_live_daemon_is_used(invocation: Invocation) -> None:
    api = TinyApi()
    with serving(api.app) as url:
        announce(invocation, url)
        with open_client(invocation) as client:
            assert client.status().version == "1.2.3"
    assert [("authorization" in seen["headers"]) for seen in api.seen] == [False, True]
    assert not (invocation.state_path / "palyra.db").exists()


def test_settings_that_the_daemon_has_not_read_are_told_of(
    invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    invocation.config_path.write_text("")
    announce(invocation, "http://127.0.0.1:1")
    os.utime(invocation.state_path / "daemon.json", (1_900_000_000, 1_900_000_000))
    os.utime(invocation.config_path, (1_800_000_000, 1_800_000_000))
    tell_of_newer_settings(invocation)
    assert capsys.readouterr().err == ""
    os.utime(invocation.config_path, (2_000_000_000, 2_000_000_000))
    tell_of_newer_settings(invocation)
    assert "start it again" in capsys.readouterr().err


def test_without_a_daemon_the_api_is_embedded(invocation: Invocation) -> None:
    with open_client(invocation) as client:
        assert "echo" in {tool.name for tool in client.tools()}
    assert (invocation.state_path / "palyra.db").exists()


def test_a_daemon_that_does_not_answer_is_no_daemon(invocation: Invocation) -> None:
    def garbage(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"what?\r\n\r\n")

    with socket.socket() as unused, ScriptedServer([garbage]) as server:
        unused.bind(("127.0.0.1", 0))
        for port in (unused.getsockname()[1], server.port):
            announce(invocation, f"http://127.0.0.1:{port}")
            with open_client(invocation) as client:
                client.health()


def test_a_port_that_another_user_took_is_not_spoken_to(
    invocation: Invocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[bytes] = []
    with ScriptedServer([lambda connection: heard.append(read_request(connection))]) as server:
        announce(invocation, f"http://127.0.0.1:{server.port}")
        monkeypatch.setattr(address, "listener_uids", lambda port: {os.geteuid() + 1})
        with pytest.raises(ForeignListener), open_client(invocation):
            pass
    assert heard == []
