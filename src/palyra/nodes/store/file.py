"""``NodeRuntimeState``: the state of devices in ``node-runtime.v1.json``, in step with the journal."""

import contextlib
import logging
import os
import secrets
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

import msgspec

from palyra.clock import Clock
from palyra.errors import Unavailable
from palyra.nodes.store.document import DamagedDocument, DocumentUnit, NodeDocument, decode, encode
from palyra.nodes.store.port import NodeStateUnreadable, NodeUnit
from palyra.store.event import NewEvent
from palyra.store.port import Store, Transaction

FILE_MODE: Final = 0o600
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class StateFileUnusable(Unavailable):
    code = "nodes.state_unusable"
    hint = "check the state directory's permissions and free space"


class DurableFolder:
    def __init__(self, folder: Path) -> None:
        self.path = folder
        # The signature of the file that this process wrote, which need not be checked before it becomes the backup.
        self._placed: tuple[int, int, int] | None = None

    def read(self, name: str) -> bytes | None:
        try:
            descriptor = os.open(self.path / name, _READ)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable("read", name, error) from error
        with open(descriptor, "rb") as file:
            return file.read()

    def write(self, name: str, content: bytes) -> None:
        """Write a file. Content and name are durable on return."""
        try:
            descriptor = os.open(self.path / name, _CREATE, FILE_MODE)
            with open(descriptor, "wb") as file:
                os.fchmod(descriptor, FILE_MODE)
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            self._sync()
        except OSError as error:
            raise self._unusable("write", name, error) from error

    def replace(self, name: str, staged: str, *, backup: str, is_good: Callable[[bytes], bool]) -> None:
        """Give the staged file the name. The old file becomes the backup, if it is good.

        Without a staged file nothing happens. Several threads and processes may do this for one staged file: one of
        them succeeds. The folder is not synced: after a power cut the staged file exists, and the step is repeated.
        """
        target, held = self.path / name, self.path / f".{name}.{secrets.token_hex(8)}.held"
        try:
            if not os.path.lexists(self.path / staged):
                return
            keep = self._good(name, is_good) and _linked(target, held)
            try:
                os.replace(self.path / staged, target)
            except FileNotFoundError:
                if keep:
                    os.unlink(held)
                return
            if keep:
                os.replace(held, self.path / backup)
            self._placed = _signature(target)
        except OSError as error:
            raise self._unusable("replace", name, error) from error

    def set_aside(self, name: str, aside: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.replace(self.path / name, self.path / aside)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path / name)

    def sweep(self, is_waste: Callable[[str], bool]) -> None:
        for name in os.listdir(self.path):
            if is_waste(name):
                self.remove(name)

    def _good(self, name: str, is_good: Callable[[bytes], bool]) -> bool:
        signature = _signature(self.path / name)
        if signature is None or signature == self._placed:
            return signature is not None
        raw = self.read(name)
        return raw is not None and is_good(raw)

    def _sync(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _unusable(self, verb: str, name: str, error: OSError) -> StateFileUnusable:
        return StateFileUnusable(f"cannot {verb} {self.path / name}: {error.strerror}", path=str(self.path / name))


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _linked(source: Path, target: Path) -> bool:
    """Link the file. Return whether it existed."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


# The journal's database holds one row: revision and digest of the document in force. A change writes the next
# document beside the file, durably, and its row commits with the journal's entries; then the document replaces the
# file. A process that was killed in between leaves a file that is one step behind, and the document that the row
# names: the next process takes that step. So file and journal always agree. The database's write lock serialises all
# processes.
#
# The replaced file stays as ``.bak``. A damaged file is renamed to ``.broken``, the newest good copy is used, and the
# journal records it. Codes are dropped then: in an older copy a used code would be live again.

FILE_NAME: Final = "node-runtime.v1.json"
BACKUP_NAME: Final = f"{FILE_NAME}.bak"
BROKEN_NAME: Final = f"{FILE_NAME}.broken"
_MARK: Final = "SELECT revision, sha256 FROM node_state_file"
# The document in force and those of units that wait in the same commit.
_REMEMBERED: Final = 4
# A reader without the lock retries this often if the state changes meanwhile.
_READ_ATTEMPTS: Final = 8

_LOG = logging.getLogger("palyra.nodes")
T = TypeVar("T")


class Mark(NamedTuple):
    revision: int
    sha256: str


class Recovery(NamedTuple):
    """The fault of the file, and the source of the state in use."""

    problem: str
    source: str


class NodeRuntimeState:
    def __init__(self, folder: Path, store: Store, clock: Clock) -> None:
        self._folder = DurableFolder(folder)
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._documents: dict[str, NodeDocument] = {}

    @classmethod
    async def open(cls, folder: Path, store: Store, clock: Clock) -> Self:
        state = cls(folder, store, clock)
        await state.prepare()
        return state

    async def prepare(self) -> None:
        """Finish the step of a killed process, repair a damaged file, and delete unused files.

        This is optional: the first change finishes the step and repairs the file too.
        """
        await self.transact(lambda unit: None)
        await self._store.transact(self._sweep)

    async def transact(self, work: Callable[[NodeUnit], T], *, essential: bool = False) -> T:
        result, mark = await self._store.transact(lambda tx: self._run(tx, work), essential=essential)
        if mark is not None:
            try:
                self._settle(mark)
            except StateFileUnusable as error:
                # The change is committed and its document is on disk beside the file. The next change takes this step.
                _LOG.warning("%s is one step behind: %s", FILE_NAME, error)
        return result

    def read(self, look: Callable[[NodeUnit], T]) -> T:
        mark = _mark(self._store.read(_MARK))
        for _ in range(_READ_ATTEMPTS):
            document, recovery = self._load(mark)
            now = _mark(self._store.read(_MARK)) if recovery is not None else mark
            if now == mark:
                break
            # Another process changed the state between the reads of the files.
            mark = now
        return look(DocumentUnit(document, self._clock.now_ms(), None))

    def _run(self, tx: Transaction, work: Callable[[NodeUnit], T]) -> tuple[T, Mark | None]:
        """Run a unit in the writer's thread, under the database's write lock."""
        visible, committed = _mark(tx.execute(_MARK)), _mark(self._store.read(_MARK))
        document, recovery = self._load(visible)
        if visible is not None and visible == committed:
            # Otherwise the document belongs to a unit of this commit, which may still fail.
            self._settle(visible)
        if recovery is not None:
            document = self._note(tx, document, recovery, visible)
        unit = DocumentUnit(document, tx.now_ms, tx.append)
        result = work(unit)
        outcome = unit.outcome()
        if outcome is None and recovery is not None:
            outcome = msgspec.structs.replace(document, revision=document.revision + 1)
        if outcome is None:
            return result, None
        raw = encode(outcome)
        mark = Mark(outcome.revision, sha256(raw).hexdigest())
        if recovery is not None and recovery.source != FILE_NAME:
            self._folder.set_aside(FILE_NAME, BROKEN_NAME)
        self._folder.write(_staged(mark), raw)
        tx.execute(
            "INSERT INTO node_state_file VALUES (1, ?, ?) ON CONFLICT (one) DO UPDATE SET"
            " revision = excluded.revision, sha256 = excluded.sha256",
            mark,
        )
        if visible is not None and visible != committed:
            self._folder.remove(_staged(visible))
        self._remember(mark, outcome)
        return result, mark

    def _settle(self, mark: Mark) -> None:
        """Put the document in place. A repetition is harmless, since each staged document has its own name."""
        self._folder.replace(FILE_NAME, _staged(mark), backup=BACKUP_NAME, is_good=_is_good)

    def _load(self, mark: Mark | None) -> tuple[NodeDocument, Recovery | None]:
        if mark is not None:
            with self._lock:
                known = self._documents.get(mark.sha256)
            if known is not None:
                return known, None
        # A document moves from the first name to the second and then to the third, so they are read in this order.
        names = (*((_staged(mark),) if mark is not None else ()), FILE_NAME, BACKUP_NAME)
        problems: dict[str, str] = {}
        good: list[tuple[str, NodeDocument]] = []
        for name in names:
            raw = self._folder.read(name)
            if raw is None:
                problems[name] = "it is not there"
                continue
            try:
                document = decode(raw)
            except DamagedDocument as error:
                problems[name] = str(error)
                continue
            if mark is not None and sha256(raw).hexdigest() == mark.sha256:
                self._remember(mark, document)
                return document, None
            good.append((name, document))
        return self._fall_back(mark, good, problems)

    def _fall_back(
        self, mark: Mark | None, good: list[tuple[str, NodeDocument]], problems: dict[str, str]
    ) -> tuple[NodeDocument, Recovery | None]:
        absent = all(problem == "it is not there" for problem in problems.values())
        if not good and mark is None and absent:
            return NodeDocument(), None
        problem = problems.get(FILE_NAME, "it is not the one that the journal's database names")
        if not good:
            if not absent:
                raise NodeStateUnreadable(
                    f"neither {FILE_NAME} nor its last copy can be read: {problem}", problem=problem
                )
            return NodeDocument(revision=mark.revision if mark else 0), Recovery(problem, "nothing")
        name, document = max(good, key=lambda found: found[1].revision)
        _LOG.warning("%s: %s; using %s, revision %d", FILE_NAME, problem, name, document.revision)
        return msgspec.structs.replace(document, codes={}), Recovery(problem, name)

    def _note(self, tx: Transaction, document: NodeDocument, recovery: Recovery, mark: Mark | None) -> NodeDocument:
        payload: dict[str, Any] = {
            "problem": recovery.problem,
            "used": recovery.source,
            "revision": document.revision,
            "expected_revision": None if mark is None else mark.revision,
        }
        tx.append(NewEvent(kind="nodes.state_recovered", actor="daemon", payload=payload))
        newest = max(document.revision, mark.revision if mark is not None else 0)
        return msgspec.structs.replace(document, revision=newest)

    def _remember(self, mark: Mark, document: NodeDocument) -> None:
        with self._lock:
            self._documents[mark.sha256] = document
            for old in list(self._documents)[:-_REMEMBERED]:
                del self._documents[old]

    def _sweep(self, tx: Transaction) -> None:
        """Delete staged documents, except this row's. The write lock excludes other writers."""
        mark = _mark(tx.execute(_MARK))
        kept = _staged(mark) if mark is not None else ""
        self._folder.sweep(lambda name: name.startswith(f".{FILE_NAME}.") and name != kept)


def _mark(rows: list[tuple[Any, ...]]) -> Mark | None:
    return Mark(*rows[0]) if rows else None


def _staged(mark: Mark) -> str:
    return f".{FILE_NAME}.{mark.revision}.{mark.sha256[:32]}.next"


def _is_good(raw: bytes) -> bool:
    try:
        decode(raw)
    except (DamagedDocument, NodeStateUnreadable):
        return False
    return True
