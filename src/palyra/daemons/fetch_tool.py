"""http.fetch as this daemon offers it: its executor joined to judge, dialler, policy and secrets."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from palyra.config.settings import EgressSettings
from palyra.daemons.call_grant import call_of, grant_of
from palyra.daemons.egress_journal import JournalObserver
from palyra.daemons.policed_egress import GrantsInUse
from palyra.egress.dial import Dialler
from palyra.egress.events import CredentialUsed, Refused
from palyra.egress.grant import EgressGrant
from palyra.egress.injection import inject, needles_of, plan_injection
from palyra.egress.judge import EgressProxyPolicyService
from palyra.egress.meter import Meter
from palyra.egress.ports import EgressObserver, SecretSource
from palyra.egress.refusal import EgressRefused, PolicyChanged
from palyra.egress.response_scan import ResponseScan
from palyra.egress.revealing import revealed
from palyra.egress.rules import parse_rules
from palyra.egress.target import Target
from palyra.fetch.client import FetchClient
from palyra.fetch.executor import FetchExecutor
from palyra.fetch.header_rules import Headers
from palyra.fetch.ports import Connection, Frame, Prepared
from palyra.fetch.request import FetchRequest
from palyra.fetch.tool import EXECUTOR
from palyra.policy.entities import EntityDirectory
from palyra.tools.call import ExecutionPlan, Outcome
from palyra.tools.spec import ToolSpec

_REDIRECTED = "/redirected"


class DialledDoor:
    """For one call: every hop is judged by list and policy, then looked up, then dialled at a judged address.

    A person who approved the call saw its first target only: to policy a redirect elsewhere is not approved.
    """

    def __init__(self, dialler: Dialler, first: Target) -> None:
        self._dialler = dialler
        self._first = first
        # What the connection under way was judged as.
        self._judged: tuple[EgressGrant, Target] | None = None

    async def connect(self, grant: EgressGrant, target: Target, meter: Meter) -> tuple[Connection, str]:
        if target != self._first:
            grant = msgspec.structs.replace(grant, grant_id=grant.grant_id + _REDIRECTED)
        self._judged = grant, target
        return await self._dialler.dial(await self._dialler.pin(grant, target), meter)

    def reconsider(self, service: EgressProxyPolicyService) -> None:
        """Raises ``PolicyChanged`` where policy no longer allows what is connected now."""
        if self._judged is None:
            return
        grant, target = self._judged
        try:
            service.judge_target(grant, target)
        except EgressRefused as refused:
            raise PolicyChanged(
                f"no longer allowed: {refused.message}", host=target.host, port=target.port
            ) from refused


class _Running:
    """One call's task and its way out, for as long as it runs. ``cut`` is why it was ended."""

    def __init__(self, task: "asyncio.Task[Any]") -> None:
        self.task = task
        self.door: DialledDoor | None = None
        self.grant: EgressGrant | None = None
        self.cut: PolicyChanged | None = None


class BoundCredentials:
    """Secrets where a binding has them, each behind its own decision and its own record."""

    def __init__(self, secrets: SecretSource, observer: EgressObserver) -> None:
        self._secrets = secrets
        self._observer = observer

    async def prepare(self, grant: EgressGrant, target: Target, method: str, path: str, headers: Headers) -> Prepared:
        plan = plan_injection(grant, target, method, path, headers)
        values = await revealed(self._secrets, grant, plan, target)
        filled = inject(plan, values)
        for one in plan.injections:
            if one.secret_ref in values:
                used = CredentialUsed(
                    target=target,
                    secret_ref=one.secret_ref,
                    header_name=one.header_name,
                    method=method,
                    path=path.partition("?")[0],
                )
                self._observer.happened(grant, used)
        return Prepared(headers=filled, redaction=ResponseScan(needles_of(plan, values)), secrets=tuple(values))


class FetchTool:
    """The executor of http.fetch with everything it stands on. What happened is in the journal before a call ends."""

    name = EXECUTOR
    keeps_deadline = True

    def __init__(
        self,
        settings: EgressSettings,
        *,
        spec: ToolSpec,
        directory: EntityDirectory,
        dialler: Dialler,
        grants: GrantsInUse,
        secrets: SecretSource,
        observer: JournalObserver,
    ) -> None:
        self._settings = settings
        self._spec = spec
        self._directory = directory
        self._dialler = dialler
        self._grants = grants
        self._credentials = BoundCredentials(secrets, observer)
        self._observer = observer
        self._running: dict[str, _Running] = {}
        ca_file = str(Path(settings.ca_file).expanduser()) if settings.ca_file else ""
        self._executor = FetchExecutor(FetchClient(observer, ca_file=ca_file), self._frame)

    async def execute(self, plan: ExecutionPlan) -> Outcome:
        call = call_of(plan, self._spec, self._directory, touched=self._spec.touches(plan.arguments))
        self._grants.enter(plan.call_id, call)
        self._grants.enter(plan.call_id + _REDIRECTED, msgspec.structs.replace(call, approved=False))
        task = asyncio.current_task()
        assert task is not None
        running = self._running[plan.call_id] = _Running(task)
        try:
            return await self._executor.execute(plan)
        except asyncio.CancelledError:
            if running.cut is None or running.grant is None or task.uncancel():
                raise
            self._observer.happened(running.grant, Refused.of(running.cut, "fetch"))
            raise running.cut from None
        finally:
            del self._running[plan.call_id]
            self._grants.leave(plan.call_id)
            self._grants.leave(plan.call_id + _REDIRECTED)
            await asyncio.shield(self._observer.flush())
            self._observer.forget(plan.call_id)

    def reconsider(self, service: EgressProxyPolicyService) -> int:
        """Ends the fetches that policy no longer allows to be where they are; says how many."""
        cut = 0
        for running in self._running.values():
            try:
                if running.door is not None and running.cut is None:
                    running.door.reconsider(service)
            except PolicyChanged as changed:
                running.cut = changed
                running.task.cancel()
                cut += 1
        return cut

    def close(self) -> None:
        self._executor.close()

    def _frame(self, plan: ExecutionPlan, request: FetchRequest) -> Frame:
        settings = self._settings
        grant = grant_of(plan, settings, parse_rules(settings.allowed_hosts), settings.bindings)
        running = self._running[plan.call_id]
        running.grant, running.door = grant, DialledDoor(self._dialler, request.address.target)
        return Frame(grant=grant, door=running.door, credentials=self._credentials)
