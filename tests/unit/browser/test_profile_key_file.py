"""The environment comes first; else a file that only the daemon can read, made once."""

import base64
import os
from pathlib import Path

import pytest

from palyra.browser.domain.profile import ProfileKeyBad
from palyra.browser.profiles.encryption import VARIABLE
from palyra.browser.profiles.store import state_keys

KEY = base64.b64encode(bytes([7]) * 32).decode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "profiles").mkdir()
    return tmp_path / "keys" / "browser.key"


def keys(path: Path, **environ: str) -> str:
    return state_keys(environ, path, path.parent.parent / "profiles").active.key_id


def test_the_environment_comes_first_and_no_file_is_made(path: Path) -> None:
    assert keys(path, **{VARIABLE: KEY})
    assert not path.exists()


def test_a_file_is_made_once(path: Path) -> None:
    assert keys(path) == keys(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["browser.key"]


def test_a_key_beside_what_it_opens_is_refused(path: Path) -> None:
    profiles = path.parent.parent / "profiles"
    with pytest.raises(ProfileKeyBad):
        state_keys({}, profiles / "key", profiles)
    (path.parent.parent / "link").symlink_to(profiles)
    with pytest.raises(ProfileKeyBad):
        state_keys({}, path.parent.parent / "link" / "key", profiles)


@pytest.mark.parametrize("what", ["open to others", "link", "second name", "pipe", "too long", "no key"])
def test_a_file_that_others_may_know_is_refused(path: Path, what: str) -> None:
    keys(path)
    match what:
        case "open to others":
            path.chmod(0o640)
        case "link":
            path.rename(path.with_name("real"))
            path.symlink_to(path.with_name("real"))
        case "second name":
            os.link(path, path.with_name("second"))
        case "pipe":
            path.unlink()
            os.mkfifo(path, 0o600)
        case "too long":
            path.write_text(f"{KEY}\n" * 100)
        case "no key":
            path.write_text("")
    with pytest.raises(ProfileKeyBad):
        keys(path)
