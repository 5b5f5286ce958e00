"""Copies of files that are being written."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fakes.small_state import make_state
from palyra.backup.archive import NothingToBackUp, copy_file, names_to_take


def test_the_checkpoint_comes_before_the_database_and_everything_else_after_it(tmp_path: Path) -> None:
    root = make_state(tmp_path / "state")
    taken = list(names_to_take(root, keys=True))
    assert taken == ["checkpoint.json", "palyra.db", "signing.key", "signing.pub", "skills/artifacts/one"]


@pytest.mark.promise("P-backup")
def test_keys_and_what_must_never_be_in_it_stay_out(tmp_path: Path) -> None:
    root = make_state(tmp_path / "state")
    assert "signing.key" not in list(names_to_take(root, keys=False))
    never = frozenset({root / "signing.key"})
    assert "signing.key" not in list(names_to_take(root, keys=True, never=never))


def test_a_directory_without_a_journal_is_none(tmp_path: Path) -> None:
    with pytest.raises(NothingToBackUp):
        list(names_to_take(tmp_path, keys=True))


def test_a_database_is_copied_whole_with_what_is_only_in_its_log(tmp_path: Path) -> None:
    root = make_state(tmp_path / "state")
    scratch = tmp_path / "scratch"
    with closing(sqlite3.connect(root / "palyra.db", isolation_level=None)) as writer:
        writer.execute("INSERT INTO t VALUES (2)")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO t VALUES (3)")
        with copy_file(root, "palyra.db", scratch) as content:
            assert content is not None
            assert scratch.stat().st_mode & 0o777 == 0o600
            (tmp_path / "copy").write_bytes(content.read())
        writer.execute("COMMIT")
    assert not scratch.exists()
    with closing(sqlite3.connect(tmp_path / "copy")) as copy:
        assert copy.execute("SELECT x FROM t").fetchall() == [(1,), (2,)]


def test_links_pipes_and_what_is_gone_are_left_out(tmp_path: Path) -> None:
    root = make_state(tmp_path / "state")
    (root / "link").symlink_to("/etc/passwd")
    os.mkfifo(root / "pipe")
    for name in ("link", "pipe", "gone"):
        with copy_file(root, name, tmp_path / "scratch") as content:
            assert content is None
