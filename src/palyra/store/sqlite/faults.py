"""What can go wrong with the database file, each with its code, and how SQLite says so."""

import sqlite3

from palyra.errors import LimitExceeded, PalyraError, Tampered, Unavailable

# The primary code is the low byte; the rest tells where in SQLite it arose.
PRIMARY_CODE = 0xFF


class DiskFull(Unavailable):
    code = "journal.disk_full"
    hint = "free space on the state directory's disk; nothing runs unrecorded, so calls are refused until then"


class JournalBusy(Unavailable):
    code = "journal.busy"
    hint = "another process holds the database; if it is not Palyra, stop it"


class JournalReadOnly(Unavailable):
    code = "journal.read_only"
    hint = "make the state directory and the database in it writable for the user Palyra runs as"


class JournalMissing(Unavailable):
    code = "journal.cannot_open"
    hint = "check --state-dir; the database is made when the daemon starts for the first time"


class JournalClosed(Unavailable):
    code = "journal.closed"
    hint = "the daemon is stopping; ask again when it runs"


class JournalOverloaded(LimitExceeded):
    code = "journal.overloaded"
    hint = "the disk does not keep up; ask again later"


class DatabaseDamaged(Tampered):
    code = "journal.database_damaged"
    hint = "keep the files as they are; `palyra journal verify` names the first event that cannot be read"


class UnknownFormat(Unavailable):
    code = "journal.unknown_format"
    hint = "this database was written by another version of Palyra"


def fault_of(error: sqlite3.Error) -> PalyraError | None:
    """The store's own trouble behind ``error``, or None if it is about one statement, such as a constraint."""
    primary = getattr(error, "sqlite_errorcode", 0) & PRIMARY_CODE
    match primary:
        case sqlite3.SQLITE_FULL:
            return DiskFull("the disk is full")
        case sqlite3.SQLITE_IOERR:
            return DiskFull(f"the disk refused a read or a write: {error}")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return JournalBusy("the database stayed locked by another process")
        case sqlite3.SQLITE_READONLY:
            return JournalReadOnly("the database cannot be written")
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return JournalMissing("the database cannot be opened")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return DatabaseDamaged(f"the database file is damaged: {error}")
        case _:
            return None


def raised(error: sqlite3.Error) -> BaseException:
    """What to raise for ``error``: the fault behind it where there is one."""
    return fault_of(error) or error
