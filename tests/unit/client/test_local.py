import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from palyra.client import address
from palyra.client.address import (
    ForeignListener,
    NoDaemon,
    PlaintextRefused,
    find_daemon,
    listener_uids,
    started_before,
)
from palyra.secret import Secret


def write(state: Path, url: str = "http://127.0.0.1:7142", pid: int | None = None, token: str = "plr_x\n") -> None:
    (state / "daemon.json").write_text(json.dumps({"url": url, "pid": os.getpid() if pid is None else pid}))
    (state / "operator.token").write_text(token)


def test_finds_the_daemon_and_the_owners_token(tmp_path: Path) -> None:
    write(tmp_path)
    found = find_daemon(tmp_path)
    assert (found.url, found.pid, found.token) == ("http://127.0.0.1:7142", os.getpid(), Secret("plr_x"))
    assert "plr_x" not in repr(found)


def test_a_file_can_be_newer_than_the_daemon(tmp_path: Path) -> None:
    settings = tmp_path / "config.toml"
    settings.write_text("")
    os.utime(settings, (2_000_000_000, 2_000_000_000))
    assert not started_before(tmp_path, settings), "there is no daemon"
    write(tmp_path)
    os.utime(tmp_path / "daemon.json", (1_900_000_000, 1_900_000_000))
    assert started_before(tmp_path, settings)
    assert not started_before(tmp_path, tmp_path / "not-there.toml")
    os.utime(settings, (1_800_000_000, 1_800_000_000))
    assert not started_before(tmp_path, settings)


def test_a_file_that_came_with_an_old_time_is_newer_than_the_daemon_too(tmp_path: Path) -> None:
    write(tmp_path)
    os.utime(tmp_path / "daemon.json", (1_000_000_000, 1_000_000_000))
    settings = tmp_path / "config.toml"
    settings.write_text("")
    os.utime(settings, (900_000_000, 900_000_000))
    assert started_before(tmp_path, settings)


def test_no_file_or_a_wrong_one_is_no_daemon(tmp_path: Path) -> None:
    with pytest.raises(NoDaemon, match="no daemon runs on"):
        find_daemon(tmp_path)
    wrong = (b"", b"{}", b'{"url": 1, "pid": 1}', b'{"url": "http://127.0.0.1:1", "pid": 0}', b'{"url": "\xff"}')
    for content in wrong:
        (tmp_path / "daemon.json").write_bytes(content)
        with pytest.raises(NoDaemon):
            find_daemon(tmp_path)
    write(tmp_path)
    (tmp_path / "operator.token").unlink()
    with pytest.raises(NoDaemon):
        find_daemon(tmp_path)


def test_a_dead_daemons_file_is_not_believed(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    for pid in (child.pid, 2**60):
        write(tmp_path, pid=pid)
        with pytest.raises(NoDaemon):
            find_daemon(tmp_path)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "real").write_text("plr_y")
    (tmp_path / "operator.token").unlink()
    (tmp_path / "operator.token").symlink_to(tmp_path / "real")
    with pytest.raises(NoDaemon):
        find_daemon(tmp_path)


def test_the_token_does_not_leave_the_machine_in_plain_text(tmp_path: Path) -> None:
    write(tmp_path, url="http://192.0.2.1:7142")
    with pytest.raises(PlaintextRefused):
        find_daemon(tmp_path)


def test_a_port_taken_over_by_another_user_gets_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    monkeypatch.setattr(address, "listener_uids", lambda port: {os.geteuid() + 1} if port == 7142 else set())
    with pytest.raises(ForeignListener):
        find_daemon(tmp_path)


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_kernel_says_who_listens(family: int, host: str) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind((host, 0))
        port = listener.getsockname()[1]
        assert listener_uids(port) == set()
        listener.listen()
        assert listener_uids(port) == {os.geteuid()}


def test_where_the_kernel_does_not_say_nothing_is_known(tmp_path: Path) -> None:
    assert listener_uids(7142, (tmp_path / "missing",)) == set()
