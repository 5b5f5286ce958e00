"""Policies in force, reloaded when their files change. Each change and each refused change is recorded."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, TypeAlias

import msgspec

from palyra.config.state_dir import StateDir
from palyra.errors import PalyraError
from palyra.policy.bundle import BadBundle, Bundle, Problem
from palyra.policy.cedar import CedarEngine, is_panic
from palyra.policy.decision import Decision
from palyra.policy.policy_files import load_bundle, watch_directory
from palyra.policy.request import EntityDirectory, PolicyRequest
from palyra.store.event import NewEvent
from palyra.store.port import Store


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

    @property
    def bundle_digest(self) -> str:
        return self._current.bundle_digest

    def decide(self, request: PolicyRequest) -> Decision:
        return self._current.decide(request)

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
    ) -> None:
        self._policy_dir = policy_dir
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
        return self._holder.bundle_digest

    @property
    def folder(self) -> Path:
        return self._policy_dir

    @property
    def engine(self) -> CedarEngine:
        """Return the engine now in force: take it once for several questions that must fit together."""
        return self._holder.current

    def decide(self, request: PolicyRequest) -> Decision:
        return self._holder.decide(request)

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
        return load_bundle(self._policy_dir, self._directory)

    def _keep(self, bundle: Bundle) -> None:
        content = msgspec.json.encode({"version": 1, "schema": bundle.schema, "files": bundle.files})
        path = self._state.path(LAST_GOOD)
        if not path.exists() or path.read_bytes() != content:
            self._state.write_atomic(LAST_GOOD, content)

    def _last_good(self) -> Bundle | None:
        path = self._state.path(LAST_GOOD)
        if not path.exists():
            return None
        kept = msgspec.json.decode(path.read_bytes(), type=_Kept)
        return Bundle(schema=kept.schema, files=kept.files, directory=self._directory)


class _Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    schema: str
    files: tuple[tuple[str, str], ...]


def _event(outcome: Swapped | Rejected) -> NewEvent:
    kind = "policy.swapped" if isinstance(outcome, Swapped) else "policy.rejected"
    return NewEvent(kind=kind, actor=ACTOR, payload=msgspec.to_builtins(outcome))
