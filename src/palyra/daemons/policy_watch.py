"""The policies in force, reloaded when their files change, with every change and every refused change on record."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from palyra.config.state_dir import StateDir
from palyra.errors import PalyraError
from palyra.journal.event import NewEvent
from palyra.journal.sqlite import SqliteStore
from palyra.policy.bundle import Bundle
from palyra.policy.cedar import CedarEngine
from palyra.policy.decision import Decision
from palyra.policy.entities import EntityDirectory
from palyra.policy.loader import load_bundle
from palyra.policy.reload import BundleHolder, Rejected, ReloadOutcome, Swapped, Unchanged
from palyra.policy.request import PolicyRequest
from palyra.policy.watcher import watch_directory

log = logging.getLogger("palyra.policy")

ACTOR = "palyrad"
LAST_GOOD = "policy-last-good.json"


class ReloadObserver(Protocol):
    def policy_reloaded(self, outcome: str) -> None: ...


class LivePolicy:
    """Starts with the files as they are. If they are broken, it starts with the last bundle that was good here, so that
    neither a bad edit nor a restart after one changes what is allowed; with none, it refuses to start."""

    def __init__(
        self,
        policy_dir: Path,
        directory: EntityDirectory,
        store: SqliteStore,
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
        """The policies in force at this moment: take it once for whatever has to fit together."""
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
        """Reloads after every change; ends only by being cancelled."""
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
