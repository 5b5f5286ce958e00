import sqlite3

import pytest

from palyra.store.sqlite.connection import fault_of, translate_error


def error(code):
    made = sqlite3.OperationalError("what SQLite said")
    made.sqlite_errorcode = code
    return made


@pytest.mark.parametrize(
    ("code", "expected"),
    [(sqlite3.SQLITE_FULL, "journal.disk_full"), (sqlite3.SQLITE_IOERR_WRITE, "journal.disk_full"),
     (sqlite3.SQLITE_IOERR_FSYNC, "journal.disk_full"), (sqlite3.SQLITE_BUSY, "journal.busy"),
     (sqlite3.SQLITE_BUSY_SNAPSHOT, "journal.busy"), (sqlite3.SQLITE_READONLY, "journal.read_only"),
     (sqlite3.SQLITE_CANTOPEN, "journal.cannot_open"), (sqlite3.SQLITE_CORRUPT, "journal.database_damaged"),
     (sqlite3.SQLITE_NOTADB, "journal.database_damaged")],
)  # fmt: skip
def test_the_stores_own_trouble_has_codes(code, expected):
    assert fault_of(error(code)).code == expected
    assert translate_error(error(code)).code == expected


@pytest.mark.parametrize("code", [sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH])
def test_a_statements_own_mistake_stays_as_it_is(code):
    mistake = error(code)
    assert fault_of(mistake) is None
    assert translate_error(mistake) is mistake
