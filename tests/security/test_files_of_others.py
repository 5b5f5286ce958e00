"""Whoever can write the settings or the policies decides what is allowed: nobody but their owner may."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes.daemon import Place
from fakes.eventually import eventually_sync
from fakes.ordinary_user import run_as_ordinary_user
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


def test_no_program_of_the_same_user_reads_the_daemons_memory(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "fakes" / "memory_reader_main.py"
    ended = run_as_ordinary_user(str(script), tmp_path)
    assert ended.returncode == 0, ended.stderr
    answer = json.loads(ended.stdout)
    assert answer["call"], "the daemon works"
    assert answer["own"] == "read", "the attack itself works"
    assert answer["found"] == dict.fromkeys(("mem", "environ", "auxv"), "PermissionError")
