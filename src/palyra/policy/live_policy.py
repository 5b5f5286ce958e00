"""Policies in force: read from files and reloaded when these change. Each change and refused change is recorded."""

import asyncio
import logging
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from importlib import resources
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, Final, Protocol, TypeAlias

import msgspec

from palyra.config.state_dir import StateDir, refuse_if_others_may_write
from palyra.errors import InvalidInput, LimitExceeded, PalyraError, Unavailable
from palyra.policy.bundle import SCHEMA_NAME, BadBundle, Bundle, Problem
from palyra.policy.cedar import CedarEngine, is_panic
from palyra.policy.decision import Decision
from palyra.policy.limits import (
    MAX_BUNDLE_BYTES,
    MAX_POLICY_FILE_BYTES,
    MAX_POLICY_FILES,
    WATCH_DEBOUNCE_MS,
    WATCH_RECHECK_MS,
)
from palyra.policy.request import EntityDirectory, PolicyRequest
from palyra.store.event import NewEvent
from palyra.store.port import Store

DEFAULTS_PREFIX: Final = "defaults/"
_DEFAULT_POLICIES: Final = ("baseline.cedar",)
_SUFFIX: Final = ".cedar"


class PolicyFileRefused(InvalidInput):
    code = "policy.file_refused"
    hint = "policy files are regular UTF-8 files inside the policy directory"


class PolicyFileTooLarge(LimitExceeded):
    code = "policy.file_too_large"
    hint = "split the policies over several files"


class PolicyDirectoryMissing(Unavailable):
    code = "policy.directory_missing"
    hint = (
        "bring the directory and its files back; if you want no policies of your own, put a .cedar file with a comment"
        " there"
    )


def load_bundle(
    policy_dir: Path | None, directory: EntityDirectory, *, proposed: bool = False, must_exist: bool = False
) -> Bundle:
    """Read the shipped schema and baseline, then the operator's ``*.cedar`` files in the order of their names.

    Skip hidden files, where editors keep half-written copies. A directory that does not exist has no policies, unless
    it ``must_exist``. Others may not be able to write it. A ``proposed`` one is not in force: anybody may write it.
    """
    files = [(DEFAULTS_PREFIX + name, _default(name)) for name in _DEFAULT_POLICIES]
    if policy_dir is not None:
        files.extend(_operator_files(policy_dir, proposed=proposed, must_exist=must_exist))
    return Bundle(
        schema=_default(SCHEMA_NAME),
        files=tuple(files),
        directory=directory,
        schema_name=DEFAULTS_PREFIX + SCHEMA_NAME,
    )


def _default(name: str) -> str:
    return resources.files("palyra.policy").joinpath("defaults", name).read_text(encoding="utf-8")


def _operator_files(policy_dir: Path, *, proposed: bool, must_exist: bool) -> Iterator[tuple[str, str]]:
    try:
        if not proposed:
            # First: who may write the folder above takes the directory away, with all that it forbids.
            refuse_if_others_may_write(policy_dir)
        names = sorted(os.listdir(policy_dir))
    except FileNotFoundError as error:
        if must_exist:
            raise PolicyDirectoryMissing(f"there is no directory {policy_dir}") from error
        return
    except OSError as error:
        raise PolicyFileRefused(f"{policy_dir} cannot be read: {error.strerror}") from error
    chosen = [name for name in names if name.endswith(_SUFFIX) and not name.startswith(".")]
    if len(chosen) > MAX_POLICY_FILES:
        raise PolicyFileTooLarge(f"{policy_dir} holds {len(chosen)} policy files, more than {MAX_POLICY_FILES}")
    total = 0
    for name in chosen:
        content = _read(policy_dir, name, proposed=proposed)
        total += len(content)
        if total > MAX_BUNDLE_BYTES:
            raise PolicyFileTooLarge(f"the files of {policy_dir} are together larger than {MAX_BUNDLE_BYTES} bytes")
        yield name, _text(policy_dir / name, content)


def _read(policy_dir: Path, name: str, *, proposed: bool) -> bytes:
    """Read one file. A link may stay inside the directory, as mounted configuration does, but not lead out of it."""
    path = policy_dir / name
    try:
        real = os.path.realpath(path, strict=True)
        root = os.path.realpath(policy_dir, strict=True)
        if os.path.commonpath((real, root)) != root:
            raise PolicyFileRefused(f"{path} is a link out of the policy directory")
        if not proposed:
            refuse_if_others_may_write(path)
        # Do not follow a last link or wait for a FIFO's writer: another process may have put one there since.
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with _regular(path, descriptor) as file:
            content = file.read(MAX_POLICY_FILE_BYTES + 1)
    except OSError as error:
        raise PolicyFileRefused(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > MAX_POLICY_FILE_BYTES:
        raise PolicyFileTooLarge(f"{path} is larger than {MAX_POLICY_FILE_BYTES} bytes")
    return content


def _regular(path: Path, descriptor: int) -> BinaryIO:
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise PolicyFileRefused(f"{path} is not a regular file")


def _text(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PolicyFileRefused(f"{path}, line {line}: byte {content[error.start]:#04x} is not UTF-8") from error


async def watch_directory(path: Path) -> AsyncIterator[None]:
    """Yield after each burst of changes, and when the directory appears, disappears or is replaced.

    A yield is a hint: the caller loads the directory again and compares digests.
    """
    from watchfiles import awatch

    while True:
        watched = _identity(path)
        if watched is None:
            await asyncio.sleep(WATCH_RECHECK_MS / 1000)
            if _identity(path) is not None:
                yield
            continue
        since_before = True
        try:
            # Without the regular wake-up, a deleted directory would leave the watch asleep for ever.
            async for changes in awatch(
                path, debounce=WATCH_DEBOUNCE_MS, rust_timeout=WATCH_RECHECK_MS, yield_on_timeout=True
            ):
                # The watch works now, but does not report changes made while it was being set up.
                if changes or since_before:
                    since_before = False
                    yield
                if _identity(path) != watched:
                    break
        except OSError:
            # The directory was removed before the watch began.
            pass
        if _identity(path) != watched:
            yield


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Swapped(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    old: str
    new: str


class Unchanged(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    digest: str


class Rejected(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The bundle of ``digest`` stays in force. ``problems`` have a place in a policy file."""

    digest: str
    code: str
    errors: tuple[str, ...]
    problems: tuple[Problem, ...] = ()


ReloadOutcome: TypeAlias = Swapped | Unchanged | Rejected


class BundleHolder:
    """Holder of the engine in force. A decision uses one engine from beginning to end: take ``current`` once."""

    def __init__(self, engine: CedarEngine) -> None:
        self._current = engine
        self._reloading = Lock()
        self.last_rejection: Rejected | None = None

    @property
    def current(self) -> CedarEngine:
        return self._current

    def try_reload(self, load: Callable[[], Bundle]) -> ReloadOutcome:
        """Load and check a bundle and put it in force at once, or change nothing and return why."""
        with self._reloading:
            old = self._current.bundle_digest
            try:
                bundle = load()
                if bundle.digest == old:
                    self.last_rejection = None
                    return Unchanged(digest=old)
                engine = CedarEngine(bundle)
            except BadBundle as error:
                return self._reject(old, error.code, tuple(p.render() for p in error.problems), error.problems)
            except PalyraError as error:
                return self._reject(old, error.code, (error.message,))
            except BaseException as error:
                # After any fault the policies in force stay, and the daemon goes on.
                if not isinstance(error, Exception) and not is_panic(error):
                    raise
                return self._reject(old, "policy.load_failed", (f"{type(error).__name__}: {error}",))
            self._current = engine
            self.last_rejection = None
            return Swapped(old=old, new=engine.bundle_digest)

    def _reject(self, digest: str, code: str, errors: tuple[str, ...], problems: tuple[Problem, ...] = ()) -> Rejected:
        rejection = Rejected(digest=digest, code=code, errors=errors, problems=problems)
        self.last_rejection = rejection
        return rejection


log = logging.getLogger("palyra.policy")

ACTOR = "palyrad"
LAST_GOOD = "policy-last-good.json"


class ReloadObserver(Protocol):
    def policy_reloaded(self, outcome: str) -> None: ...


class LivePolicy:
    """Policy engine of the daemon. If the files are broken at the start, it uses the last good bundle.

    So neither a bad edit nor a restart after one changes permissions. Without a good bundle it refuses to start.
    """

    def __init__(
        self,
        policy_dir: Path,
        directory: EntityDirectory,
        store: Store,
        state: StateDir,
        observer: ReloadObserver,
        *,
        named: bool = False,
    ) -> None:
        """Put the files of the folder in force. The folder has to exist if it is ``named`` in the settings."""
        self._policy_dir = policy_dir
        self._named = named
        self._directory = directory
        self._store = store
        self._state = state
        self._observer = observer
        # Called on the event loop after a new bundle is in force.
        self.on_change: Callable[[], object] = lambda: None
        try:
            engine = CedarEngine(self._load())
        except PalyraError as error:
            good = self._last_good()
            if good is None:
                raise
            self._holder = BundleHolder(CedarEngine(good))
            outcome = self._holder.try_reload(self._load)
            if isinstance(outcome, Rejected):
                log.error("the policies in %s are refused: %s; the last good ones stay in force", policy_dir, error)
                store.transact_blocking(lambda tx: tx.append(_event(outcome)))
        else:
            self._holder = BundleHolder(engine)
            self._keep(engine.bundle)

    @property
    def bundle_digest(self) -> str:
        return self.engine.bundle_digest

    @property
    def folder(self) -> Path:
        return self._policy_dir

    @property
    def engine(self) -> CedarEngine:
        """Return the engine now in force: take it once for several questions that must fit together."""
        return self._holder.current

    def decide(self, request: PolicyRequest) -> Decision:
        return self.engine.decide(request)

    def status(self) -> dict[str, Any]:
        rejected = self._holder.last_rejection
        return {
            "bundle_digest": self.bundle_digest,
            "directory": str(self._policy_dir),
            "rejected": None if rejected is None else {"code": rejected.code, "errors": list(rejected.errors)},
        }

    async def reload(self) -> ReloadOutcome:
        outcome = await asyncio.to_thread(self._holder.try_reload, self._load)
        self._observer.policy_reloaded(type(outcome).__name__.lower())
        if isinstance(outcome, Swapped):
            self.on_change()
            self._keep(self._holder.current.bundle)
            log.info("policy bundle %s replaced %s", outcome.new[:12], outcome.old[:12])
        elif isinstance(outcome, Rejected):
            log.error("new policies refused, the old ones stay in force: %s", "; ".join(outcome.errors))
        if not isinstance(outcome, Unchanged):
            await self._store.transact(lambda tx: tx.append(_event(outcome)))
        return outcome

    async def watch(self) -> None:
        async for _ in watch_directory(self._policy_dir):
            try:
                await self.reload()
            except PalyraError as error:
                log.error("a policy reload could not be recorded: %s", error)

    def _load(self) -> Bundle:
        return load_installed(self._policy_dir, self._directory, self._state.root, named=self._named)

    def _keep(self, bundle: Bundle) -> None:
        content = msgspec.json.encode({"version": 1, "schema": bundle.schema, "files": bundle.files})
        path = self._state.path(LAST_GOOD)
        if not path.exists() or path.read_bytes() != content:
            self._state.write_atomic(LAST_GOOD, content)

    def _last_good(self) -> Bundle | None:
        kept = _read_kept(self._state.root)
        return None if kept is None else Bundle(schema=kept.schema, files=kept.files, directory=self._directory)


class _Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    schema: str
    files: tuple[tuple[str, str], ...]


def _read_kept(state: Path) -> _Kept | None:
    path = state / LAST_GOOD
    return msgspec.json.decode(path.read_bytes(), type=_Kept) if path.exists() else None


def load_installed(policy_dir: Path, directory: EntityDirectory, state: Path, *, named: bool) -> Bundle:
    """Load the bundle that a daemon puts in force.

    Where there were files of the operator there have to be some: a folder that is gone, or that lies below a volume
    which is not mounted, must not lift what it forbids. One that is ``named`` in the settings has to exist.
    """
    kept = _read_kept(state)
    had_own = kept is not None and _has_own(kept.files)
    bundle = load_bundle(policy_dir, directory, must_exist=named or had_own)
    if had_own and not _has_own(bundle.files):
        raise PolicyDirectoryMissing(f"{policy_dir} has no policy file any more")
    return bundle


def _has_own(files: tuple[tuple[str, str], ...]) -> bool:
    return any(not name.startswith(DEFAULTS_PREFIX) for name, _ in files)


def _event(outcome: Swapped | Rejected) -> NewEvent:
    kind = "policy.swapped" if isinstance(outcome, Swapped) else "policy.rejected"
    return NewEvent(kind=kind, actor=ACTOR, payload=msgspec.to_builtins(outcome))
