"""The host services of one call of a skill: requests, secrets, storage, messages and log lines.

If a skill fails, its caller learns what was refused to it before: the service, the code, and the host that the skill
named. The reasons, and the names of secrets, channels and stored values, are in the journal for operators.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from palyra.config.state_dir import StateDir
from palyra.egress.client.http_client import FetchClient
from palyra.egress.domain.rules import parse_rules
from palyra.egress.policy_judge import CallOfGrant, RevealsSecrets
from palyra.egress.settings import EgressSettings
from palyra.errors import Denied, NeedsApproval, PalyraError
from palyra.executors.fetch.executor import BoundCredentials
from palyra.executors.network.grant import call_of, grant_of
from palyra.executors.network.service import NetworkService
from palyra.executors.wasm.channels import ChannelHub
from palyra.executors.wasm.skill_http import SkillHttp
from palyra.executors.wasm.skill_storage import SkillFolders, SkillStorage, StorageThreads
from palyra.executors.wasm.skill_tools import DEFAULT_REQUESTS, DEFAULT_STORAGE_BYTES, ActiveTool
from palyra.ids import Principal
from palyra.journal.redaction import Redactor
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import ExecutionPlan
from palyra.policy.request import EntityDirectory
from palyra.skills.package.capabilities import STAR, channel_meant, host_named
from palyra.vault.access import SecretUse
from palyra.vault.reference import SecretRef
from palyra.wasm.domain.grants import Grant
from palyra.wasm.domain.host_interface import GuestRequest, GuestResponse, HostRefusal, Status
from palyra.wasm.domain.outcome import CapabilityDenied, LogLine

log = logging.getLogger(__name__)

# Refusals in an error. The first ones name the cause; a skill that retries is refused each time.
MAX_LISTED_REFUSALS: Final = 8


class SkillRefusals:
    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._noted: dict[tuple[str, str, str, str], None] = {}

    @contextmanager
    def note_refusals(self, service: str, host: str = "", line: str = "") -> Iterator[None]:
        """Note a refusal, of which the guest gets the status only.

        ``host`` is the text of the guest. ``line`` is that of the manifest, which a person reviewed.
        """
        try:
            yield
        except HostRefusal as refusal:
            if refusal.status is Status.DENIED:
                self._note(service, CapabilityDenied.code, host, line)
            raise
        except (Denied, NeedsApproval) as refusal:
            self._note(service, refusal.code, host, line)
            raise

    def _note(self, service: str, code: str, host: str, line: str) -> None:
        if len(self._noted) < MAX_LISTED_REFUSALS:
            self._noted[(service, code, self._redactor.text(host), self._redactor.text(line))] = None

    def explain(self, failure: PalyraError) -> None:
        """Add the refusals to the error that ended the call: one of them may be its cause."""
        if not self._noted:
            return
        failure.details["refused"] = [
            {"service": service, "code": code} | ({"host": host} if host else {})
            for service, code, host, _ in self._noted
        ]
        # Readers take a hint for Palyra's own words: no text of the guest is in it.
        words = {f"{service}{f' to {line}' if line else ''} ({code})": None for service, code, _, line in self._noted}
        failure.hint = f"{failure.hint}; before that Palyra refused it {', '.join(words)}"


R = TypeVar("R")
# A message is shown to people: more than a screen of text is a file.
MAX_MESSAGE_CHARS: Final = 16_384
# Messages of one call; each is an entry in the journal.
MAX_MESSAGES: Final = 64


class SkillServices:
    """The services of one call. ``used`` counts the uses of each."""

    def __init__(self, calls: "SkillCalls", plan: ExecutionPlan, active: ActiveTool) -> None:
        self._calls = calls
        self._plan = plan
        self._active = active
        self.used: Counter[str] = Counter()
        self.refusals = SkillRefusals(calls.redactor)

    # Most calls need few of these, so each is made on its first use.

    @cached_property
    def call(self) -> CallOfGrant:
        active = self._active
        return call_of(self._plan, active.spec, self._calls.directory, skill=active.module.entity())

    @cached_property
    def _http(self) -> SkillHttp:
        return self._calls.open_http(self._plan, self._active)

    @cached_property
    def _storage(self) -> SkillStorage:
        return self._calls.open_storage(self._plan, self._active)

    async def http(self, grant: Grant, request: GuestRequest) -> GuestResponse:
        most = self._active.requested.quotas.http_requests
        if self.used["requests"] >= (DEFAULT_REQUESTS if most is None else most):
            raise HostRefusal(Status.QUOTA)
        self.used["requests"] += 1
        try:
            with self.refusals.note_refusals("http", host_named(grant.name, request.path), grant.name):
                return await self._http.send(grant.name, request)
        finally:
            self._plan.usage.note(BudgetKind.EGRESS_BYTES, self._http.spent)

    async def secret_reveal(self, grant: Grant) -> str:
        """Reveal a secret if policy permits this use. The runtime has checked that its grant allows revealing."""
        use = SecretUse(
            principal=self.call.principal,
            channel=self.call.channel,
            run=self._plan.run_id,
            call=self._plan.call_id,
            tool=self.call.tool,
            skill=self.call.skill,
            approved=self.call.approved and grant.name in self.call.secrets,
        )
        with self.refusals.note_refusals("secret"):
            secret = await self._calls.secrets.reveal(SecretRef.parse(grant.name), use)
        self.used["secrets revealed"] += 1
        return secret.reveal()

    async def _run_stored(self, work: Callable[[], R]) -> R:
        with self.refusals.note_refusals("storage"):
            return await self._calls.threads.run(self._active.module.skill_id, work)

    async def storage_get(self, grant: Grant, key: str) -> bytes:
        self.used["values read"] += 1
        value = await self._run_stored(lambda: self._storage.get(_path(grant, key)))
        if value is None:
            raise HostRefusal(Status.NOT_FOUND)
        return value

    async def storage_put(self, grant: Grant, key: str, value: bytes) -> None:
        self._require_writable(grant)
        await self._run_stored(lambda: self._storage.put(_path(grant, key), value))
        self.used["values written"] += 1

    async def storage_delete(self, grant: Grant, key: str) -> None:
        self._require_writable(grant)
        await self._run_stored(lambda: self._storage.delete(_path(grant, key)))
        self.used["values deleted"] += 1

    async def storage_list(self, grant: Grant, prefix: str) -> tuple[str, ...]:
        self.used["listings"] += 1
        root = _path(grant, "")
        found = await self._run_stored(lambda: self._storage.paths(root + prefix))
        return tuple(path.removeprefix(root) for path in found)

    async def channel_send(self, grant: Grant, text: str) -> None:
        channel, text = channel_meant(grant.name, text)
        if len(text) > MAX_MESSAGE_CHARS:
            raise HostRefusal(Status.TOO_LARGE)
        if self.used["messages"] >= MAX_MESSAGES:
            raise HostRefusal(Status.QUOTA)
        self.used["messages"] += 1
        await self._calls.channels.send(
            channel,
            self._calls.redactor.text(text),
            skill=self._active.module.skill_id,
            principal=self._plan.principal,
            run=self._plan.run_id,
            call=self._plan.call_id,
        )

    def log(self, line: LogLine, *, was_cut: bool) -> LogLine:
        redact = self._calls.redactor.broken_off if was_cut else self._calls.redactor.text
        return LogLine(level=line.level, text=redact(line.text))

    def explain(self, failure: PalyraError) -> None:
        self.refusals.explain(failure)

    def receipt(self) -> list[dict[str, Any]]:
        if not self.used:
            return []
        used = +self.used
        lines = self._http.receipt() if used["requests"] else []
        if used:
            got = ", ".join(f"{count} {what}" for what, count in sorted(used.items()))
            lines.append({"layer": "host services", "asked": "only what the manifest was granted", "got": got})
        return lines

    def _require_writable(self, grant: Grant) -> None:
        # A root with a star is the skill's whole storage, whose grant has an empty name.
        root = grant.name or STAR
        if root not in self._active.requested.filesystem.write_roots or self._plan.obligations.read_only:
            with self.refusals.note_refusals("storage"):
                raise HostRefusal(Status.DENIED)


def _path(grant: Grant, key: str) -> str:
    """Return the path of a key below its root. The runtime has checked that keys are relative, without ``..``."""
    return f"{grant.name}/{key}" if grant.name else key


class SkillCalls:
    """The parts that all calls of skills share, and the services of each call."""

    def __init__(
        self,
        settings: EgressSettings,
        state: StateDir,
        *,
        egress: NetworkService,
        directory: EntityDirectory,
        secrets: RevealsSecrets,
        channels: ChannelHub,
        redactor: Redactor,
        require_kept: Callable[[str, str], None],
    ) -> None:
        """Take ``require_kept``, which raises if the skill of this id and digest was removed."""
        self.directory = directory
        self.secrets = secrets
        self.channels = channels
        self.redactor = redactor
        self.threads = StorageThreads()
        self._settings = settings
        self._folders = SkillFolders(state)
        # Skills whose storage a call has opened.
        self._opened: set[str] = set()
        self._egress = egress
        self._require_kept = require_kept
        self._credentials = BoundCredentials(egress.secrets, egress.observer)
        ca_file = str(Path(settings.ca_file).expanduser()) if settings.ca_file else ""
        self._client = FetchClient(egress.observer, ca_file=ca_file)

    @asynccontextmanager
    async def services(self, plan: ExecutionPlan, active: ActiveTool) -> AsyncIterator[SkillServices]:
        """Make the services of one call. The journal has its egress events before it ends."""
        services = SkillServices(self, plan, active)
        if not active.requested.http_egress_allowlist:
            yield services
            return
        self._egress.grants.enter(plan.call_id, services.call)
        try:
            yield services
        finally:
            self._egress.grants.leave(plan.call_id)
            await asyncio.shield(self._egress.observer.flush())
            self._egress.observer.forget(plan.call_id)

    def open_storage(self, plan: ExecutionPlan, active: ActiveTool) -> SkillStorage:
        most, module = active.requested.quotas.storage_bytes, active.module
        if module.skill_id not in self._opened:
            self._opened.add(module.skill_id)
            if kept := self._folders.kept(module.skill_id):
                log.warning("%s is kept and used by nobody: principals have storage of their own now", kept)
        return self._folders.of(
            module.skill_id,
            Principal.parse(plan.principal),
            most_bytes=DEFAULT_STORAGE_BYTES if most is None else most,
            require_kept=lambda: self._require_kept(module.skill_id, module.digest),
        )

    def open_http(self, plan: ExecutionPlan, active: ActiveTool) -> SkillHttp:
        return SkillHttp(
            self._client,
            self._egress.proxy.dialler,
            self._credentials,
            grant_of(plan, self._settings, active.hosts),
            plain=parse_rules(self._settings.plain_targets),
            may_carry_secrets=active.requested.may_carry_secrets,
        )
