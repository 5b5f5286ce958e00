"""What a skill's guest asks of the outside, answered for one call: requests, secrets, storage, messages, log lines."""

from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, TypeVar

from palyra.daemons.channel_hub import ChannelHub
from palyra.daemons.policed_egress import CallOfGrant, RevealsSecrets
from palyra.daemons.skill_http import SkillHttp
from palyra.daemons.skill_refusals import SkillRefusals
from palyra.daemons.skill_storage import SkillStorage
from palyra.daemons.skill_tools import DEFAULT_REQUESTS, ActiveTool
from palyra.daemons.storage_threads import StorageThreads
from palyra.errors import PalyraError
from palyra.journal.redact import Redactor
from palyra.skills.capabilities import STAR
from palyra.skills.star_handles import channel_meant, host_named
from palyra.tools.budget import BudgetKind
from palyra.tools.call import ExecutionPlan
from palyra.vault.ref import SecretRef
from palyra.vault.use import SecretUse
from palyra.wasm.abi import Status
from palyra.wasm.grants import Grant
from palyra.wasm.outcome import LogLine
from palyra.wasm.ports import GuestRequest, GuestResponse, HostRefusal, NoServices

R = TypeVar("R")
# A message is shown to people: more than a screen of text is a file.
MAX_MESSAGE_CHARS: Final = 16_384
# Messages of one call; each is an entry in the journal.
MAX_MESSAGES: Final = 64


class SkillServices:
    """One object serves one call. ``used`` counts every service that was asked for and given."""

    def __init__(
        self,
        plan: ExecutionPlan,
        active: ActiveTool,
        *,
        call: Callable[[], CallOfGrant],
        http: Callable[[], SkillHttp],
        secrets: RevealsSecrets,
        storage: Callable[[], SkillStorage],
        threads: StorageThreads,
        channels: ChannelHub,
        redactor: Redactor,
    ) -> None:
        """What is given as a function is made when it is first needed: most calls of most skills need little of it."""
        self._plan = plan
        self._active = active
        self._make_call = call
        self._make_http = http
        self._secrets = secrets
        self._make_storage = storage
        self._threads = threads
        self._channels = channels
        self._redactor = redactor
        self.used: Counter[str] = Counter()
        self.refusals = SkillRefusals(redactor)

    @cached_property
    def call(self) -> CallOfGrant:
        return self._make_call()

    @cached_property
    def _http(self) -> SkillHttp:
        return self._make_http()

    @cached_property
    def _storage(self) -> SkillStorage:
        return self._make_storage()

    async def http(self, grant: Grant, request: GuestRequest) -> GuestResponse:
        most = self._active.asked.quotas.http_requests
        if self.used["requests"] >= (DEFAULT_REQUESTS if most is None else most):
            raise HostRefusal(Status.QUOTA)
        self.used["requests"] += 1
        try:
            with self.refusals.noted("http", host_named(grant.name, request.path), grant.name):
                return await self._http.send(grant.name, request)
        finally:
            self._plan.usage.note(BudgetKind.EGRESS_BYTES, self._http.spent)

    async def secret_reveal(self, grant: Grant) -> str:
        """The runtime has checked that this secret may be revealed at all; policy decides on this use."""
        use = SecretUse(
            principal=self.call.principal,
            channel=self.call.channel,
            run=self._plan.run_id,
            call=self._plan.call_id,
            tool=self.call.tool,
            skill=self.call.skill,
            approved=self.call.approved and grant.name in self.call.secrets,
        )
        with self.refusals.noted("secret"):
            secret = await self._secrets.reveal(SecretRef.parse(grant.name), use)
        self.used["secrets revealed"] += 1
        return secret.reveal()

    async def _stored(self, work: Callable[[], R]) -> R:
        with self.refusals.noted("storage"):
            return await self._threads.run(self._active.module.skill_id, work)

    async def storage_get(self, grant: Grant, key: str) -> bytes:
        self.used["values read"] += 1
        value = await self._stored(lambda: self._storage.get(_path(grant, key)))
        if value is None:
            raise HostRefusal(Status.NOT_FOUND)
        return value

    async def storage_put(self, grant: Grant, key: str, value: bytes) -> None:
        self._require_writable(grant)
        await self._stored(lambda: self._storage.put(_path(grant, key), value))
        self.used["values written"] += 1

    async def storage_delete(self, grant: Grant, key: str) -> None:
        self._require_writable(grant)
        await self._stored(lambda: self._storage.delete(_path(grant, key)))
        self.used["values deleted"] += 1

    async def storage_list(self, grant: Grant, prefix: str) -> tuple[str, ...]:
        self.used["listings"] += 1
        root = _path(grant, "")
        found = await self._stored(lambda: self._storage.paths(root + prefix))
        return tuple(path.removeprefix(root) for path in found)

    async def channel_send(self, grant: Grant, text: str) -> None:
        channel, text = channel_meant(grant.name, text)
        if len(text) > MAX_MESSAGE_CHARS:
            raise HostRefusal(Status.TOO_LARGE)
        if self.used["messages"] >= MAX_MESSAGES:
            raise HostRefusal(Status.QUOTA)
        self.used["messages"] += 1
        await self._channels.send(
            channel,
            self._redactor.text(text),
            skill=self._active.module.skill_id,
            principal=self._plan.principal,
            run=self._plan.run_id,
            call=self._plan.call_id,
        )

    def log(self, line: LogLine, *, was_cut: bool) -> LogLine:
        return _redacted(self._redactor, line, was_cut=was_cut)

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
        # A root with a star is the whole of the skill's storage, which grants know by no name.
        root = grant.name or STAR
        if root not in self._active.asked.filesystem.write_roots or self._plan.obligations.read_only:
            with self.refusals.noted("storage"):
                raise HostRefusal(Status.DENIED)


class LogOnly(NoServices):
    """For skills that were granted nothing: there is nothing to ask for, and nothing to be kept of a call. One serves
    them all."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def log(self, line: LogLine, *, was_cut: bool) -> LogLine:
        return _redacted(self._redactor, line, was_cut=was_cut)

    def explain(self, failure: PalyraError) -> None:
        """Nothing was refused."""

    def receipt(self) -> list[dict[str, Any]]:
        return []


def _redacted(redactor: Redactor, line: LogLine, *, was_cut: bool) -> LogLine:
    return LogLine(level=line.level, text=redactor.broken_off(line.text) if was_cut else redactor.text(line.text))


def _path(grant: Grant, key: str) -> str:
    """Keys are relative, without ``..``: the runtime has seen to it. What is beneath a root begins with it."""
    return f"{grant.name}/{key}" if grant.name else key
