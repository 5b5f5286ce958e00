"""What a skill's guest asks of the outside, answered for one call: requests, secrets, storage, messages, log lines."""

import asyncio
from collections import Counter
from typing import Any, Final

from palyra.daemons.channel_hub import ChannelHub
from palyra.daemons.policed_egress import CallOfGrant, RevealsSecrets
from palyra.daemons.skill_http import SkillHttp
from palyra.daemons.skill_storage import SkillStorage
from palyra.journal.redact import Redactor
from palyra.skills.capabilities import STAR, FilesystemRequest
from palyra.tools.budget import BudgetKind
from palyra.tools.call import ExecutionPlan
from palyra.vault.ref import SecretRef
from palyra.vault.use import SecretUse
from palyra.wasm.abi import Status
from palyra.wasm.grants import Grant
from palyra.wasm.outcome import LogLine
from palyra.wasm.ports import GuestRequest, GuestResponse, HostRefusal

# A message is shown to people: more than a screen of text is a file.
MAX_MESSAGE_CHARS: Final = 16_384
# Messages of one call; each is an entry in the journal.
MAX_MESSAGES: Final = 64


class SkillServices:
    """One object serves one call. ``used`` counts every service that was asked for and given."""

    def __init__(
        self,
        plan: ExecutionPlan,
        call: CallOfGrant,
        *,
        http: SkillHttp,
        max_requests: int,
        secrets: RevealsSecrets,
        storage: SkillStorage,
        roots: FilesystemRequest,
        channels: ChannelHub,
        redactor: Redactor,
    ) -> None:
        self._plan = plan
        self._call = call
        self._http = http
        self._max_requests = max_requests
        self._secrets = secrets
        self._storage = storage
        # A root with a star is the whole of the skill's storage, which grants know by no name.
        self._writable = frozenset("" if root == STAR else root for root in roots.write_roots)
        self._channels = channels
        self._redactor = redactor
        self.used: Counter[str] = Counter()

    @property
    def _skill(self) -> str:
        return "" if self._call.skill is None else self._call.skill.uid.id

    async def http(self, grant: Grant, request: GuestRequest) -> GuestResponse:
        if self.used["requests"] >= self._max_requests:
            raise HostRefusal(Status.QUOTA)
        self.used["requests"] += 1
        try:
            return await self._http.send(grant.name, request)
        finally:
            self._plan.usage.note(BudgetKind.EGRESS_BYTES, self._http.spent)

    async def secret_reveal(self, grant: Grant) -> str:
        """The runtime has checked that this secret may be revealed at all; policy decides on this use."""
        use = SecretUse(
            principal=self._call.principal,
            channel=self._call.channel,
            run=self._plan.run_id,
            call=self._plan.call_id,
            tool=self._call.tool,
            skill=self._call.skill,
            approved=self._call.approved,
        )
        secret = await self._secrets.reveal(SecretRef.parse(grant.name), use)
        self.used["secrets revealed"] += 1
        return secret.reveal()

    async def storage_get(self, grant: Grant, key: str) -> bytes:
        self.used["values read"] += 1
        value = await asyncio.to_thread(self._storage.get, _path(grant, key))
        if value is None:
            raise HostRefusal(Status.NOT_FOUND)
        return value

    async def storage_put(self, grant: Grant, key: str, value: bytes) -> None:
        self._require_writable(grant)
        await asyncio.to_thread(self._storage.put, _path(grant, key), value)
        self.used["values written"] += 1

    async def storage_delete(self, grant: Grant, key: str) -> None:
        self._require_writable(grant)
        await asyncio.to_thread(self._storage.delete, _path(grant, key))
        self.used["values deleted"] += 1

    async def storage_list(self, grant: Grant, prefix: str) -> tuple[str, ...]:
        self.used["listings"] += 1
        root = _path(grant, "")
        found = await asyncio.to_thread(self._storage.paths, root + prefix)
        return tuple(path.removeprefix(root) for path in found)

    async def channel_send(self, grant: Grant, text: str) -> None:
        if grant.name == STAR:
            # A star names no channel to send to.
            raise HostRefusal(Status.BAD_REQUEST)
        if len(text) > MAX_MESSAGE_CHARS:
            raise HostRefusal(Status.TOO_LARGE)
        if self.used["messages"] >= MAX_MESSAGES:
            raise HostRefusal(Status.QUOTA)
        self.used["messages"] += 1
        await self._channels.send(
            grant.name,
            self._redactor.text(text),
            skill=self._skill,
            principal=self._plan.principal,
            run=self._plan.run_id,
            call=self._plan.call_id,
        )

    def log(self, line: LogLine) -> LogLine:
        return LogLine(level=line.level, text=self._redactor.text(line.text))

    def receipt(self) -> list[dict[str, Any]]:
        lines = self._http.receipt()
        if self.used:
            got = ", ".join(f"{count} {what}" for what, count in sorted(self.used.items()))
            lines.append({"layer": "host services", "asked": "only what the manifest was granted", "got": got})
        return lines

    def _require_writable(self, grant: Grant) -> None:
        if grant.name not in self._writable or self._plan.obligations.read_only:
            raise HostRefusal(Status.DENIED)


def _path(grant: Grant, key: str) -> str:
    """Keys are relative, without ``..``: the runtime has seen to it. What is beneath a root begins with it."""
    return f"{grant.name}/{key}" if grant.name else key
