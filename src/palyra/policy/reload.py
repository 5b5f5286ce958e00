"""Replaces the policies in force with a new bundle, or not at all."""

from collections.abc import Callable
from threading import Lock
from typing import TypeAlias

import msgspec

from palyra.errors import PalyraError
from palyra.policy.bundle import BadBundle, Bundle
from palyra.policy.cedar import CedarEngine, is_panic
from palyra.policy.decision import Decision
from palyra.policy.positions import Problem
from palyra.policy.request import PolicyRequest


class Swapped(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    old: str
    new: str


class Unchanged(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    digest: str


class Rejected(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The bundle of ``digest`` stays in force. ``problems`` are those with a place in a policy file."""

    digest: str
    code: str
    errors: tuple[str, ...]
    problems: tuple[Problem, ...] = ()


ReloadOutcome: TypeAlias = Swapped | Unchanged | Rejected


class BundleHolder:
    """The engine in force. A decision uses one engine from beginning to end: take ``current`` once."""

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
        """Loads and checks a bundle and puts it in force at once, or leaves everything as it is and says why."""
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
                # Whatever it is, the policies in force must stay and the daemon must live to say so.
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
