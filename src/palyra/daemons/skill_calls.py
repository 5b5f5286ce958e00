"""Opens what one call of a skill stands on: its grant at the way out, its storage, its channels; and ends it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from palyra.config.settings import EgressSettings
from palyra.config.state_dir import StateDir
from palyra.daemons.channel_hub import ChannelHub
from palyra.daemons.egress_parts import EgressParts
from palyra.daemons.fetch_tool import BoundCredentials
from palyra.daemons.policed_egress import CallOfGrant, RevealsSecrets
from palyra.daemons.skill_http import SkillHttp
from palyra.daemons.skill_services import SkillServices
from palyra.daemons.skill_storage import SkillStorage
from palyra.daemons.skill_tools import DEFAULT_STORAGE_BYTES, ActiveTool
from palyra.egress.grant import EgressGrant
from palyra.egress.rules import parse_rules
from palyra.fetch.client import FetchClient
from palyra.identity.principal import Principal
from palyra.journal.redact import Redactor
from palyra.policy.entities import EntityDirectory
from palyra.tools.budget import BudgetKind
from palyra.tools.call import ExecutionPlan

# Beneath the state directory, for each skill.
DATA: Final = "skills/{skill_id}/data"


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
    ) -> None:
        self._settings = settings
        self._state = state
        self._egress = egress
        self._directory = directory
        self._secrets = secrets
        self._channels = channels
        self._redactor = redactor
        self._credentials = BoundCredentials(egress.secrets, egress.observer)
        ca_file = str(Path(settings.ca_file).expanduser()) if settings.ca_file else ""
        self._client = FetchClient(egress.observer, ca_file=ca_file)

    @asynccontextmanager
    async def open(self, plan: ExecutionPlan, active: ActiveTool) -> AsyncIterator[SkillServices]:
        """What the call did at the way out is in the journal before it ends."""
        services = SkillServices(
            plan,
            active,
            call=lambda: self._call(plan, active),
            http=lambda: self._http(plan, active),
            secrets=self._secrets,
            storage=lambda: self._storage(active),
            channels=self._channels,
            redactor=self._redactor,
        )
        if not active.asked.http_egress_allowlist:
            yield services
            return
        self._egress.grants.enter(plan.call_id, services.call)
        try:
            yield services
        finally:
            self._egress.grants.leave(plan.call_id)
            await asyncio.shield(self._egress.observer.flush())
            self._egress.observer.forget(plan.call_id)

    def _storage(self, active: ActiveTool) -> SkillStorage:
        most = active.asked.quotas.storage_bytes
        return SkillStorage(
            self._state.path(DATA.format(skill_id=active.module.skill_id)),
            most_bytes=DEFAULT_STORAGE_BYTES if most is None else most,
        )

    def _http(self, plan: ExecutionPlan, active: ActiveTool) -> SkillHttp:
        return SkillHttp(self._client, self._egress.proxy.dialler, self._credentials, self._grant(plan, active))

    def _call(self, plan: ExecutionPlan, active: ActiveTool) -> CallOfGrant:
        metadata = active.spec.metadata
        capabilities = frozenset(map(str, metadata.capabilities))
        return CallOfGrant(
            principal=Principal.parse(plan.principal),
            channel=plan.channel,
            tool=self._directory.tool(plan.tool, capabilities, metadata.sensitive, plan.tier.value),
            approved=plan.approved,
            skill=active.module.entity(),
        )

    def _grant(self, plan: ExecutionPlan, active: ActiveTool) -> EgressGrant:
        settings = self._settings
        return EgressGrant(
            grant_id=plan.call_id,
            principal=plan.principal,
            run=plan.run_id,
            call=plan.call_id,
            tool=plan.tool,
            rules=active.hosts,
            private_targets=parse_rules(settings.private_targets),
            max_bytes=min(settings.max_call_bytes, plan.granted.get(BudgetKind.EGRESS_BYTES, 0)),
            max_tunnels=settings.max_tunnels,
        )
