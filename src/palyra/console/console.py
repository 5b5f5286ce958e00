"""The console's parts as its pages use them."""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import msgspec

from palyra.api.service import ApiService, ApiStore
from palyra.console.forgeries import Forgeries
from palyra.console.login_throttle import LoginThrottle
from palyra.doctor.report import Report
from palyra.errors import PalyraError
from palyra.journal.verify import VerifyReport
from palyra.nodes.pairing import PairingState
from palyra.policy.explain import Explanation
from palyra.policy.replay import NotReplayable, RecordedDecision, VerdictChanged
from palyra.policy.request import PolicyRequest
from palyra.skills.builder import Candidate
from palyra.tools.sqlite_approvals import count_pending

CHANNEL = "console"


class PolicyView(Protocol):
    """The policies in force, for people to look at."""

    def overview(self) -> dict[str, Any]: ...

    def policies(self) -> list[dict[str, str]]: ...

    def policy_text(self, policy_id: str) -> dict[str, str] | None: ...

    def explain(self, request: PolicyRequest) -> Explanation: ...

    def replay(self, records: Iterable[RecordedDecision]) -> list[VerdictChanged | NotReplayable]: ...


class JournalView(Protocol):
    def verify(self) -> VerifyReport:
        """Raises where something does not hold."""

    def export(self, first: int, last: int | None) -> Iterator[bytes]: ...


class MachineView(Protocol):
    def examine(self) -> Report: ...


class CandidateView(Protocol):
    """What the skill builder made, if it is switched on."""

    @property
    def enabled(self) -> bool: ...

    def all(self) -> tuple[Candidate, ...]: ...

    def files(self, candidate_id: str) -> tuple[Candidate, dict[str, str], str]:
        """The candidate, its files as text, and the digest of them all."""

    def write_scaffold(self, name: str, publisher: str, language: str, prompt: str) -> Candidate: ...

    def discard(self, candidate_id: str) -> None: ...


class ConsoleParts(msgspec.Struct, frozen=True, kw_only=True):
    policy: PolicyView
    journal: JournalView
    machine: MachineView
    candidates: CandidateView
    egress_rules: tuple[str, ...] = ()


class Console:
    def __init__(self, service: ApiService, parts: ConsoleParts) -> None:
        self.service = service.through(CHANNEL)
        self.doorkeeper = service
        self.policy = parts.policy
        self.journal = parts.journal
        self.machine = parts.machine
        self.candidates = parts.candidates
        self.egress_rules = parts.egress_rules
        self.throttle = LoginThrottle()
        self.forgeries = Forgeries(service.store, service.clock)
        self.listeners = 0
        # Work that takes a while and that nobody needs twice at once.
        self.verifying = asyncio.Lock()
        self.examining = asyncio.Lock()
        self.examined: tuple[int, Report] | None = None

    async def counts(self) -> dict[str, int]:
        """What waits for a person on each page, which the menu shows beside its words."""
        waiting = {"/approvals": count_pending(self.store), "/skills": self.service.skills.index.count_waiting()}
        with contextlib.suppress(PalyraError):
            desks = await self.service.nodes()
            waiting["/devices"] = len(await desks.pairing.pairings(PairingState.PENDING_APPROVAL))
        return waiting

    @property
    def store(self) -> ApiStore:
        return self.service.store
