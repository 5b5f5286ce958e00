"""The folder of the socket: the owner's alone, with a token that is new at each start."""

import os
import stat
from pathlib import Path

import pytest

from palyra.browser.service.access import SOCKET_NAME, TOKEN_NAME, BrowserAway, SocketExposed, SocketPlace


def test_the_token_is_for_the_owner_and_new_each_time(tmp_path: Path) -> None:
    place = SocketPlace.make(tmp_path / "b")
    first = place.new_token()
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "b" / TOKEN_NAME).stat().st_mode) == 0o600
    other = SocketPlace(tmp_path / "b")
    assert other.read_token() == first
    (tmp_path / "b" / SOCKET_NAME).touch()
    again = SocketPlace.make(tmp_path / "b")
    assert not (tmp_path / "b" / SOCKET_NAME).exists()
    assert again.new_token() != first
    for each in (place, other, again):
        each.close()


def test_a_token_is_read_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, link, on_its_way = SocketPlace.make(tmp_path / "b"), os.link, []

    def linked(*names: str, **how: int) -> None:
        with pytest.raises(BrowserAway):
            place.read_token()
        on_its_way.append(names)
        link(*names, **how)

    monkeypatch.setattr(os, "link", linked)
    assert place.new_token() == place.read_token() and len(on_its_way) == 1
    monkeypatch.undo()
    # Another daemon at the same place would have one of its own already.
    with pytest.raises(FileExistsError):
        place.new_token()
    assert os.listdir(tmp_path / "b") == [TOKEN_NAME]
    place.close()


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir(mode=0o700)
    (tmp_path / "b").chmod(0o750)
    before = len(os.listdir("/proc/self/fd"))
    for make in (SocketPlace, SocketPlace.make):
        with pytest.raises(SocketExposed):
            make(tmp_path / "b")
    assert len(os.listdir("/proc/self/fd")) == before


def test_where_no_daemon_is_it_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(BrowserAway):
        SocketPlace(tmp_path / "nothing")
    place = SocketPlace.make(tmp_path / "b")
    with pytest.raises(BrowserAway):
        place.read_token()
    (tmp_path / "b" / TOKEN_NAME).symlink_to("/etc/hostname")
    with pytest.raises(BrowserAway):
        place.read_token()
    place.close()
