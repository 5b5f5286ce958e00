"""Opens what one call of a skill stands on: its grant at the way out, its storage, its channels; and ends it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from palyra.config.settings import EgressSettings
from palyra.config.state_dir import StateDir
from palyra.daemons.call_grant import call_of, grant_of
from palyra.daemons.channel_hub import ChannelHub
from palyra.daemons.egress_parts import EgressParts
from palyra.daemons.fetch_tool import BoundCredentials
from palyra.daemons.policed_egress import RevealsSecrets
from palyra.daemons.skill_http import SkillHttp
from palyra.daemons.skill_services import LogOnly, SkillServices
from palyra.daemons.skill_storage import SkillFolders, SkillStorage
from palyra.daemons.skill_tools import DEFAULT_STORAGE_BYTES, ActiveTool
from palyra.daemons.storage_threads import StorageThreads
from palyra.egress.rules import parse_rules
from palyra.fetch.client import FetchClient
from palyra.journal.redact import Redactor
from palyra.policy.entities import EntityDirectory
from palyra.tools.call import ExecutionPlan


class SkillCalls:
    def __init__(
        self,
        settings: EgressSettings,
        state: StateDir,
        *,
        egress: EgressParts,
        directory: EntityDirectory,
        secrets: RevealsSecrets,
        channels: ChannelHub,
        redactor: Redactor,
        require_kept: Callable[[str, str], None],
    ) -> None:
        """``require_kept`` raises when the skill of this id and digest may not store anything any more."""
        self._settings = settings
        self._folders = SkillFolders(state)
        self._threads = StorageThreads()
        self._egress = egress
        self._directory = directory
        self._secrets = secrets
        self._channels = channels
        self._redactor = redactor
        self.log_only = LogOnly(redactor)
        self._require_kept = require_kept
        self._credentials = BoundCredentials(egress.secrets, egress.observer)
        ca_file = str(Path(settings.ca_file).expanduser()) if settings.ca_file else ""
        self._client = FetchClient(egress.observer, ca_file=ca_file)

    def services(self, plan: ExecutionPlan, active: ActiveTool) -> SkillServices:
        """For one call. Those of a skill that may reach hosts are used within ``way_out``."""
        return SkillServices(
            plan,
            active,
            call=lambda: call_of(plan, active.spec, self._directory, skill=active.module.entity()),
            http=lambda: self._http(plan, active),
            secrets=self._secrets,
            storage=lambda: self._storage(active),
            threads=self._threads,
            channels=self._channels,
            redactor=self._redactor,
        )

    @asynccontextmanager
    async def way_out(self, plan: ExecutionPlan, services: SkillServices) -> AsyncIterator[None]:
        """What the call did at the way out is in the journal before it ends."""
        self._egress.grants.enter(plan.call_id, services.call)
        try:
            yield
        finally:
            self._egress.grants.leave(plan.call_id)
            await asyncio.shield(self._egress.observer.flush())
            self._egress.observer.forget(plan.call_id)

    def _storage(self, active: ActiveTool) -> SkillStorage:
        most, module = active.asked.quotas.storage_bytes, active.module
        return self._folders.of(
            module.skill_id,
            most_bytes=DEFAULT_STORAGE_BYTES if most is None else most,
            require_kept=lambda: self._require_kept(module.skill_id, module.digest),
        )

    def _http(self, plan: ExecutionPlan, active: ActiveTool) -> SkillHttp:
        grant = grant_of(plan, self._settings, active.hosts)
        plain = parse_rules(self._settings.plain_targets)
        return SkillHttp(
            self._client,
            self._egress.proxy.dialler,
            self._credentials,
            grant,
            plain=plain,
            may_carry_secrets=active.asked.may_carry_secrets,
        )
