"""The services that the console's pages use."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palyra.clock import SystemClock
from palyra.errors import PalyraError
from palyra.ids import Ulid
from palyra.journal.checkpoint import load_checkpoint
from palyra.journal.export import export_lines
from palyra.journal.verify import VerifyReport, newest_checkpoint, verify_journal, walk_journal
from palyra.nodes.domain.records import PairingState
from palyra.pipeline.store.approval_tables import count_pending
from palyra.policy.live_policy import LivePolicy
from palyra.server.console.security import Forgeries, LoginThrottle
from palyra.server.context import ApiService, ApiStore
from palyra.signing.ed25519 import Ed25519Verifier
from palyra.skills.build.candidates import Candidates
from palyra.skills.build.generation import BuilderDisabled, Candidate, files_digest
from palyra.skills.settings import SkillsSettings
from palyra.store.sqlite.store import SqliteStore

CHANNEL = "console"


def find_policy_text(live: LivePolicy, policy_id: str) -> dict[str, str] | None:
    policy = live.engine.policies.get(policy_id)
    if policy is None:
        return None
    return {
        "id": policy.id,
        "effect": policy.effect,
        "location": str(policy.location),
        "text": policy.text,
        "comment": _comment_above(dict(live.engine.bundle.files).get(policy.location.file, ""), policy.location.line),
    }


def _comment_above(text: str, line: int) -> str:
    lines = text.splitlines()[: max(0, line - 1)]
    comment: list[str] = []
    while lines and lines[-1].strip().startswith("//"):
        comment.append(lines.pop().strip().removeprefix("//").strip())
    return " ".join(reversed(comment))


class JournalService:
    def __init__(self, store: SqliteStore, public_key: Path, checkpoint: Path) -> None:
        """``checkpoint`` is the copy of the newest checkpoint beside the journal."""
        self._store = store
        self._public_key = public_key
        self._checkpoint = checkpoint

    def verify(self) -> VerifyReport:
        anchors = [load_checkpoint(self._checkpoint)] if self._checkpoint.exists() else []
        return verify_journal(self._store.reader, [self._verifier()], anchors=anchors)

    def export(self, first: int, last: int | None) -> Iterator[bytes]:
        """Export events up to the newest checkpoint, which is made now. Blocking."""
        self._store.seal()
        newest = newest_checkpoint(self._store.reader)
        if last is None and newest is not None:
            last = newest.last_seq
        _, start, items = walk_journal(self._store.reader, [self._verifier()], first_seq=first, last_seq=last)
        return export_lines(items, start)

    def _verifier(self) -> Ed25519Verifier:
        return Ed25519Verifier.from_pem_file(self._public_key)


class CandidateService:
    """The skill builder's candidates, with the built-in generator. Other generators run on the command line."""

    def __init__(self, folder: Path, settings: SkillsSettings) -> None:
        self._candidates = Candidates(folder)
        self.enabled = settings.builder_enabled

    def all(self) -> tuple[Candidate, ...]:
        return self._candidates.all()[::-1]

    def files(self, candidate_id: str) -> tuple[Candidate, dict[str, str], str]:
        """Return the candidate, its files as text, and the digest of all files."""
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


@dataclass(kw_only=True)
class Console:
    """The services of one console, its open pages, and work that runs once at a time."""

    service: ApiService
    policy: LivePolicy
    journal: JournalService
    candidates: CandidateService
    # Takes some seconds, in a thread: one check a row, as ``palyra doctor --json`` prints it.
    examine_machine: Callable[[], list[dict[str, Any]]]
    egress_rules: tuple[str, ...] = ()
    # Rules for hosts, and the requests that these take, in words.
    request_rules: tuple[tuple[str, str], ...] = ()
    listeners: int = 0
    # When the machine was examined last, and the checks.
    examined: tuple[int, list[dict[str, Any]]] | None = None

    def __post_init__(self) -> None:
        self.throttle = LoginThrottle()
        self.forgeries = Forgeries(self.service.store, self.service.clock)
        self.verifying = asyncio.Lock()
        self.examining = asyncio.Lock()

    async def counts(self) -> dict[str, int]:
        """Return how many items of each page wait for a person. The menu shows these numbers."""
        waiting = {"/approvals": count_pending(self.store), "/skills": self.service.skills().index.count_waiting()}
        with contextlib.suppress(PalyraError):
            devices = await self.service.nodes()
            waiting["/devices"] = len(await devices.pairing.pairings(PairingState.PENDING_APPROVAL))
        return waiting

    @property
    def store(self) -> ApiStore:
        return self.service.store
