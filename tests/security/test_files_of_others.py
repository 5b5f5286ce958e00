"""Whoever can write the settings or the policies decides what is allowed: nobody but their owner may."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes.daemon import Place
from fakes.eventually import eventually_sync
from fakes.ordinary_user import run_as_ordinary_user
from fakes.started_warm import PALYRA, run_palyra
from palyra.config.state_dir import WritableByOthers, refuse_if_others_may_write
from palyra.errors import PalyraError

pytestmark = pytest.mark.promise("P-state-private")

PLANTED = '@id("planted") permit(principal, action, resource);'
CODE = "config.writable_by_others"


@pytest.mark.parametrize("open_up", [lambda p: p.chmod(0o666), lambda p: p.parent.chmod(0o777)], ids=["file", "folder"])
def test_settings_that_others_can_write_start_nothing(tmp_path: Path, open_up: Callable[[Path], None]) -> None:
    place = Place(tmp_path / "home", '[access]\noperators = ["user:operator"]\n')
    open_up(place.config)
    try:
        error = place.palyra("config", "show", "--json").error
        assert error["code"] == CODE
        assert "chmod go-w" in error["hint"]
    finally:
        place.config.parent.chmod(0o755)


@pytest.mark.parametrize("how", ["a file that all can write", "a folder that all can write", "a folder above it"])
def test_policies_that_others_can_write_do_not_come_into_force(tmp_path: Path, how: str) -> None:
    place = Place(tmp_path / "home")
    with place.daemon() as daemon, daemon.client() as client:
        before = client.status().document["policy"]["bundle_digest"]
        planted = place.policies / "planted.cedar"
        if how == "a file that all can write":
            planted.write_text("")
            planted.chmod(0o666)
        elif how == "a folder that all can write":
            place.policies.chmod(0o777)
        else:
            place.policies.parent.chmod(0o777)
        planted.write_text(PLANTED)
        try:
            rejected = eventually_sync(lambda: client.status().document["policy"]["rejected"])
            assert rejected["code"] == CODE
            assert client.status().document["policy"]["bundle_digest"] == before
            with pytest.raises(PalyraError):
                client.call("fs.write", {"path": "a", "content": "b"}, principal="agent:x")
        finally:
            place.policies.chmod(0o755)
            place.policies.parent.chmod(0o755)
        # Repaired as the hint says, they come into force.
        planted.chmod(0o644)
        eventually_sync(lambda: client.status().document["policy"]["bundle_digest"] != before)


def test_a_file_of_another_user_is_refused_and_a_sticky_folder_is_not(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.touch()
    tmp_path.chmod(0o1777)
    refuse_if_others_may_write(path)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
        with pytest.raises(WritableByOthers):
            refuse_if_others_may_write(path)
        os.chown(path, 0, 65534)
        path.chmod(0o664)
        with pytest.raises(WritableByOthers):
            refuse_if_others_may_write(path)


def test_policies_that_others_take_away_stay_in_force(tmp_path: Path) -> None:
    place = Place(tmp_path / "home")
    (place.policies / "own.cedar").write_text(
        '@id("mine") forbid(principal, action == Action::"tool.execute", resource);'
    )
    with place.daemon() as daemon, daemon.client() as client:
        before = client.status().document["policy"]["bundle_digest"]
        place.policies.parent.chmod(0o777)
        try:
            place.policies.rename(place.policies.with_name("aside"))
            rejected = eventually_sync(lambda: client.status().document["policy"]["rejected"])
            assert rejected["code"] == CODE
            assert client.status().document["policy"]["bundle_digest"] == before
        finally:
            place.policies.parent.chmod(0o755)


def test_settings_that_others_may_have_taken_away_start_nothing(tmp_path: Path) -> None:
    (tmp_path / "palyra").mkdir()
    (tmp_path / "palyra").chmod(0o777)
    environment = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    words = [*PALYRA, "config", "show", "--json"]
    done = run_palyra(words, env={**os.environ, **environment}, given="", text=True, timeout=60)
    assert json.loads(done.stdout)["error"]["code"] == CODE


def _in_a_link_that_others_swap(safe: Path, place: Path) -> Path:
    """The file itself is safe. The link to it is not: it may lead to what an agent wrote into the workspace."""
    (place / "link").symlink_to(safe)
    place.chmod(0o777)
    return place / "link"


def _behind_a_folder_of_a_link(safe: Path, place: Path) -> Path:
    (place / "open").mkdir()
    (place / "open" / "there").symlink_to(os.path.relpath(safe.parent, place / "open"))
    (place / "open").chmod(0o777)
    (place / "link").symlink_to(f"open/../open/there/{safe.name}")
    return place / "link"


def _under_a_second_name_in_a_sticky_folder(safe: Path, place: Path) -> Path:
    os.link(safe, place / "second")
    place.chmod(0o1777)
    return place / "second"


def _with_an_access_list(safe: Path, place: Path) -> Path:
    """As ``setfacl -m u:65534:rw`` does: the mode shows these rights as those of the group, a private one here."""
    own, named, group, mask, others = (1, 6, -1), (2, 6, 65_534), (4, 4, -1), (16, 6, -1), (32, 0, -1)
    entries = b"".join(struct.pack("<HHi", *entry) for entry in (own, named, group, mask, others))
    os.setxattr(safe, "system.posix_acl_access", struct.pack("<I", 2) + entries)
    assert safe.stat().st_mode & 0o060 == 0o060
    return safe


def _as_a_sticky_folder_of_policies(safe: Path, place: Path) -> Path:
    place.chmod(0o1777)
    return place


@pytest.mark.parametrize(
    "expose",
    [
        _in_a_link_that_others_swap,
        _behind_a_folder_of_a_link,
        _under_a_second_name_in_a_sticky_folder,
        _with_an_access_list,
        _as_a_sticky_folder_of_policies,
    ],
)
def test_what_others_swap_or_add_on_the_way_is_refused(tmp_path: Path, expose: Callable[[Path, Path], Path]) -> None:
    tmp_path.chmod(0o755)
    safe = tmp_path / "safe" / "config.toml"
    place = tmp_path / "place"
    for folder in (safe.parent, place):
        folder.mkdir()
    safe.touch()
    (place / "own").symlink_to(safe)
    refuse_if_others_may_write(place / "own")
    with pytest.raises(WritableByOthers):
        refuse_if_others_may_write(expose(safe, place))


def test_settings_behind_a_link_that_others_swap_start_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path / "home")
    place.config.rename(tmp_path / "safe.toml")
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    place.config = _in_a_link_that_others_swap(tmp_path / "safe.toml", tmp_path / "open")
    assert place.palyra("config", "show", "--json").error["code"] == CODE


def test_no_program_of_the_same_user_reads_the_daemons_memory(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "fakes" / "memory_reader_main.py"
    ended = run_as_ordinary_user(str(script), tmp_path)
    assert ended.returncode == 0, ended.stderr
    answer = json.loads(ended.stdout)
    assert answer["call"], "the daemon works"
    assert answer["own"] == "read", "the attack itself works"
    assert answer["embedded"] == "PermissionError", "a call without a daemon"
    assert answer["found"] == dict.fromkeys(("mem", "environ", "auxv"), "PermissionError")
