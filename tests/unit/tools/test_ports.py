"""The store that the daemon gives the tools is the store they declared."""

import inspect
from typing import Any

import pytest

from palyra.journal.sqlite import SqliteStore
from palyra.journal.transaction import Transaction as JournalTransaction
from palyra.tools.ports import Store, Transaction


def declared(port: Any) -> list[str]:
    return [name for name, member in vars(port).items() if not name.startswith("_") and callable(member)]


@pytest.mark.parametrize(("port", "adapter"), [(Store, SqliteStore), (Transaction, JournalTransaction)])
def test_every_declared_method_is_there_and_takes_what_was_declared(port: Any, adapter: Any) -> None:
    assert declared(port)
    for name in declared(port):
        asked = inspect.signature(getattr(port, name)).parameters
        given = inspect.signature(getattr(adapter, name)).parameters
        assert list(asked) == list(given), name
        assert inspect.iscoroutinefunction(getattr(port, name)) == inspect.iscoroutinefunction(getattr(adapter, name))


def test_a_transaction_has_one_instant() -> None:
    assert isinstance(vars(Transaction)["now_ms"], property)
    assert isinstance(vars(JournalTransaction)["now_ms"], property) or "now_ms" in JournalTransaction.__slots__
