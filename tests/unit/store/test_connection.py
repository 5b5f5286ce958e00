import sqlite3

import pytest

from fakes.journal_harness import JournalHarness
from palyra.errors import PalyraError
from palyra.store.sqlite.connection import open_reader, open_writer


def code_of(action):
    with pytest.raises(PalyraError) as caught:
        action()
    return caught.value.code


def test_the_file_is_private_and_durable(tmp_path):
    connection = open_writer(tmp_path / "j.db", ())
    try:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA recursive_triggers").fetchone() == (1,)
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    finally:
        connection.close()


def test_opening_again_changes_nothing_and_adds_new_tables(tmp_path):
    schema = ["CREATE TABLE IF NOT EXISTS a (x)"]
    open_writer(tmp_path / "j.db", schema).close()
    connection = open_writer(tmp_path / "j.db", [*schema, "CREATE TABLE IF NOT EXISTS b (x)"])
    assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE name IN ('a', 'b')").fetchone() == (2,)
    connection.close()


def test_a_broken_schema_leaves_nothing_behind(tmp_path):
    with pytest.raises(sqlite3.OperationalError):
        open_writer(tmp_path / "j.db", ["CREATE TABLE good (x)", "CREATE NONSENSE"])
    connection = sqlite3.connect(tmp_path / "j.db")
    assert connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
    connection.close()


def test_a_reader_cannot_write(tmp_path):
    open_writer(tmp_path / "j.db", ()).close()
    connection = open_reader(tmp_path / "j.db")
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM events")
    connection.close()


def test_other_files_and_other_formats_are_refused(tmp_path):
    path = tmp_path / "j.db"
    assert code_of(lambda: open_reader(path)) == "journal.cannot_open"
    assert code_of(lambda: open_writer(tmp_path / "no" / "j.db", ())) == "journal.cannot_open"
    path.write_bytes(b"this is not a database at all, it is a text" * 100)
    assert code_of(lambda: open_reader(path)) == "journal.database_damaged"
    assert code_of(lambda: open_writer(path, ())) == "journal.database_damaged"
    path.unlink()
    sqlite3.connect(path).execute("CREATE TABLE other (x)").connection.close()
    assert code_of(lambda: open_reader(path)) == "journal.unknown_format"
    path.unlink()
    connection = open_writer(path, ())
    connection.execute("UPDATE journal_format SET name = 'palyra.journal.store/9'")
    connection.close()
    assert code_of(lambda: open_reader(path)) == "journal.unknown_format"
    assert code_of(lambda: open_writer(path, ())) == "journal.unknown_format"


def test_a_name_with_odd_characters_is_only_a_name(tmp_path):
    folder = tmp_path / "a?mode=rwc#%41"
    folder.mkdir()
    JournalHarness(folder).fill(3)
    connection = open_reader(folder / "palyra.db")
    assert connection.execute("SELECT count(*) FROM events").fetchone() == (3,)
    connection.close()
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
