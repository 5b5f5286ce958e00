"""The console's parts as its pages use them."""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec

from palyra.clock import SystemClock
from palyra.config.state_dir import StateDir
from palyra.daemon.settings import Settings
from palyra.doctor.report import Report, examine
from palyra.errors import PalyraError
from palyra.ids import Ulid
from palyra.journal.checkpoint import CHECKPOINT_NAME, load_checkpoint
from palyra.journal.export import export_lines
from palyra.journal.verify import VerifyReport, verify_journal, walk_journal
from palyra.nodes.domain.records import PairingState
from palyra.pipeline.store.approval_tables import count_pending
from palyra.policy.dry_run import NotReplayable, RecordedDecision, VerdictChanged, replay
from palyra.policy.explain import Explanation
from palyra.policy.live_policy import LivePolicy
from palyra.policy.request import PolicyRequest
from palyra.server.console.security import Forgeries, LoginThrottle
from palyra.server.context import ApiService, ApiStore
from palyra.signing.ed25519 import Ed25519Verifier
from palyra.skills.build.candidates import Candidates
from palyra.skills.build.generation import BuilderDisabled, Candidate, files_digest
from palyra.skills.settings import SkillsSettings
from palyra.store.sqlite.store import SqliteStore

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


# What the console's pages need of the daemon's parts, each behind the protocol that the console declares.

PUBLIC_KEY = "signing.pub"
CANDIDATES = "skill-candidates"


class PolicyDesk:
    """The policies in force, as the console shows them."""

    def __init__(self, live: LivePolicy) -> None:
        self._live = live

    def overview(self) -> dict[str, Any]:
        return self._live.status()

    def policies(self) -> list[dict[str, str]]:
        return [shown for name in self._live.engine.policies if (shown := self.policy_text(name)) is not None]

    def explain(self, request: PolicyRequest) -> Explanation:
        return self._live.engine.explain(request)

    def replay(self, records: Iterable[RecordedDecision]) -> list[VerdictChanged | NotReplayable]:
        return list(replay(records, self._live.engine))

    def policy_text(self, policy_id: str) -> dict[str, str] | None:
        engine = self._live.engine
        policy = engine.policies.get(policy_id)
        if policy is None:
            return None
        return {
            "id": policy.id,
            "effect": policy.effect,
            "location": str(policy.location),
            "text": policy.text,
            "comment": _comment_above(dict(engine.bundle.files).get(policy.location.file, ""), policy.location.line),
        }


def _comment_above(text: str, line: int) -> str:
    """What its author wrote above a policy."""
    lines = text.splitlines()[: max(0, line - 1)]
    told: list[str] = []
    while lines and lines[-1].strip().startswith("//"):
        told.append(lines.pop().strip().removeprefix("//").strip())
    return " ".join(reversed(told))


class JournalDesk:
    def __init__(self, store: SqliteStore, state: StateDir) -> None:
        self._store = store
        self._state = state

    def verify(self) -> VerifyReport:
        """Against the copy of the newest checkpoint beside the journal too, as the command line does."""
        copy = self._state.path(CHECKPOINT_NAME)
        anchors = [load_checkpoint(copy)] if copy.exists() else []
        return verify_journal(self._store.reader, [self._verifier()], anchors=anchors)

    def export(self, first: int, last: int | None) -> Iterator[bytes]:
        _, start, items = walk_journal(self._store.reader, [self._verifier()], first_seq=first, last_seq=last)
        return export_lines(items, start)

    def _verifier(self) -> Ed25519Verifier:
        return Ed25519Verifier.from_pem_file(self._state.path(PUBLIC_KEY))


class MachineDesk:
    def __init__(self, state: StateDir, policy_dir: Path, settings: Settings) -> None:
        self._state = state
        self._policy_dir = policy_dir
        self._settings = settings

    def examine(self) -> Report:
        from palyra.doctor.checks import machine_probes

        return examine(machine_probes(self._state.root, self._policy_dir, self._settings))


class CandidateDesk:
    """The skill builder's candidates, with the generator that is built in: another one runs from the command line."""

    def __init__(self, state: StateDir, settings: SkillsSettings) -> None:
        self._candidates = Candidates(state.path(CANDIDATES))
        self.enabled = settings.builder_enabled

    def all(self) -> tuple[Candidate, ...]:
        return self._candidates.all()[::-1]

    def files(self, candidate_id: str) -> tuple[Candidate, dict[str, str], str]:
        self._require_enabled()
        candidate = self._candidates.get(candidate_id)
        files = self._candidates.files(candidate_id)
        texts = {name: data.decode("utf-8", "replace") for name, data in sorted(files.items())}
        return candidate, texts, files_digest(files)

    def write_scaffold(self, name: str, publisher: str, language: str, prompt: str) -> Candidate:
        from palyra.skills.build.generation import generation_request, require_generated
        from palyra.skills.build.project import Language, project_names
        from palyra.skills.build.project_files import template
        from palyra.skills.build.template_generator import LANGUAGES, TemplateGenerator

        self._require_enabled()
        request = generation_request(project_names(name, publisher), Language(language), prompt, ())
        generator = TemplateGenerator({one: template(one) for one in LANGUAGES})
        generated = generator.generate(request)
        require_generated(generated, request)
        candidate = Candidate(
            id=str.__str__(Ulid.new()),
            skill_id=name,
            language=request.language,
            generator=generator.name,
            created_ms=SystemClock().now_ms(),
            prompt=prompt,
            notes=generated.notes,
        )
        self._candidates.add(candidate, generated.files)
        return candidate

    def discard(self, candidate_id: str) -> None:
        self._require_enabled()
        self._candidates.discard(candidate_id)

    def _require_enabled(self) -> None:
        if not self.enabled:
            raise BuilderDisabled("the skill builder is switched off")
