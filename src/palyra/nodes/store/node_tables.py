"""The state of devices in SQL, in one transaction with the journal's entries."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from palyra.clock import Clock
from palyra.nodes.store.document import encode_records
from palyra.nodes.store.port import Append, Identified, NodeStateUnreadable, NodeUnit, Shelf
from palyra.store.port import Store, Transaction

T = TypeVar("T")


R = TypeVar("R", bound=Identified)
Execute = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]


class SqlShelf(Shelf[R]):
    def __init__(self, name: str, type_: type[R], execute: Execute, *, writable: bool) -> None:
        super().__init__(writable=writable)
        self._name = name
        self._execute = execute
        self._decoder = msgspec.json.Decoder(type_)

    def get(self, id_: str) -> R | None:
        rows = self._execute("SELECT record FROM node_state WHERE shelf = ? AND id = ?", (self._name, id_))
        return self._decode(rows[0][0]) if rows else None

    def put(self, record: R) -> None:
        self._note_change()
        self._execute(
            "INSERT INTO node_state VALUES (?, ?, ?) ON CONFLICT (shelf, id) DO UPDATE SET record = excluded.record",
            (self._name, record.id, encode_records(record)),
        )

    def delete(self, id_: str) -> None:
        self._note_change()
        self._execute("DELETE FROM node_state WHERE shelf = ? AND id = ?", (self._name, id_))

    def list(self) -> Sequence[R]:
        rows = self._execute("SELECT record FROM node_state WHERE shelf = ? ORDER BY id", (self._name,))
        return [self._decode(row[0]) for row in rows]

    def _decode(self, raw: bytes) -> R:
        try:
            return self._decoder.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise NodeStateUnreadable(
                f"a record among the {self._name} of devices is not understood: {error}",
                hint="use the version of Palyra that wrote it, or verify the journal's database",
            ) from error


class SqlUnit(NodeUnit):
    def __init__(self, execute: Execute, now_ms: int, append: Append | None) -> None:
        super().__init__(
            lambda name, type_: SqlShelf(name, type_, execute, writable=append is not None), now_ms, append
        )


class SqlNodeState:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def transact(self, work: Callable[[NodeUnit], T], *, essential: bool = False) -> T:
        def run(tx: Transaction) -> T:
            unit = SqlUnit(tx.execute, tx.now_ms, tx.append)
            result = work(unit)
            unit.keep_within_bounds()
            return result

        return await self._store.transact(run, essential=essential)

    def read(self, look: Callable[[NodeUnit], T]) -> T:
        return look(SqlUnit(self._store.read, self._clock.now_ms(), None))
