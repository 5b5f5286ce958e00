"""The executor of ``http.fetch``. It keeps its own deadline, and returns the content received by then."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from palyra.clock import MS_PER_SECOND
from palyra.egress.client.http_client import Fetch, FetchClient, keeps_what_came
from palyra.egress.client.request import FetchAccess, FetchRequest, Prepared
from palyra.egress.domain.events import CredentialUsed, EgressObserver, Refused, SecretSource
from palyra.egress.domain.grant import EgressGrant, Meter
from palyra.egress.domain.header_rules import Headers
from palyra.egress.domain.injection import ResponseScan, inject, plan_injection, reveal_all, secret_patterns
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.domain.refusal import EgressRefused, PolicyChanged
from palyra.egress.domain.rules import parse_rules
from palyra.egress.domain.target import Target
from palyra.egress.limits import RENDER_THREADS
from palyra.egress.policy_judge import GrantsInUse
from palyra.egress.proxy.dial import Dialler
from palyra.egress.settings import EgressSettings
from palyra.egress.tls import Connection
from palyra.errors import LimitExceeded, PalyraError
from palyra.executors.fetch.result import build_result
from palyra.executors.fetch.spec import EXECUTOR
from palyra.executors.network.grant import call_of, grant_of
from palyra.executors.network.journal import JournalObserver
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import ExecutionPlan, ExecutorOutcome
from palyra.pipeline.domain.spec import ToolSpec
from palyra.policy.request import EntityDirectory


class FetchTimedOut(LimitExceeded):
    code = "fetch.timed_out"
    hint = "ask for less with max_bytes, or for a longer timeout_ms within the call's deadline"
    http_status = 504


async def run_fetch(
    client: FetchClient,
    access: FetchAccess,
    request: FetchRequest,
    plan: ExecutionPlan,
    threads: ThreadPoolExecutor | None = None,
) -> ExecutorOutcome:
    grant = access.grant
    fetch = client.fetch(access, request)
    timeout_ms = min(plan.timeout_ms, request.timeout_ms or plan.timeout_ms)
    error: PalyraError | None = None
    try:
        async with asyncio.timeout(timeout_ms / MS_PER_SECOND):
            await fetch.run()
    except TimeoutError:
        error = FetchTimedOut(f"the fetch did not finish in {timeout_ms} ms")
    except PalyraError as failure:
        error = failure
        if isinstance(failure, EgressRefused):
            client.observer.observe(grant, Refused.of(failure, "fetch"))
    finally:
        # Charge the bytes on the wire however the fetch ends, also when it is cancelled.
        plan.usage.note(BudgetKind.EGRESS_BYTES, fetch.budget.spent)
    answer = fetch.answer
    if error is not None and (answer is None or not (isinstance(error, FetchTimedOut) or keeps_what_came(error))):
        raise error
    assert answer is not None
    result: dict[str, Any] = await asyncio.get_running_loop().run_in_executor(
        threads, build_result, answer, request.format, request.max_bytes, plan.max_output_bytes
    )
    fetch.note_redactions()
    return ExecutorOutcome(result=result, receipt=_receipt(fetch, grant), error=error)


def _receipt(fetch: Fetch, grant: EgressGrant) -> tuple[dict[str, Any], ...]:
    secured = [each.tls for each in fetch.reached if each.tls]
    secrets = [f"{ref} to {each.authority}" for each in fetch.reached for ref in each.secrets]
    lines = [
        {
            "layer": "egress",
            "asked": "allowed hosts at judged addresses",
            "got": ", ".join(f"{each.authority} at {each.address}" for each in fetch.reached),
        },
        {
            "layer": "network bytes",
            "asked": f"at most {grant.max_bytes}",
            "got": str(fetch.budget.spent),
        },
    ]
    if secured:
        lines.append({"layer": "tls", "asked": "verified, 1.2 or later", "got": ", ".join(secured)})
    if secrets:
        lines.append({"layer": "credentials", "asked": "only where bound", "got": ", ".join(secrets)})
    return tuple(lines)


_REDIRECTED = "/redirected"


class DialledConnector:
    """Connects each hop of one call: the lists and policy judge the target, then its addresses, then it is dialled.

    A person who approved the call saw its first target only. To policy, a redirect elsewhere is not approved.
    """

    def __init__(self, dialler: Dialler, first: Target) -> None:
        self._dialler = dialler
        self._first = first
        # The grant and target under which the present connection was judged.
        self._judged: tuple[EgressGrant, Target] | None = None

    async def connect(self, grant: EgressGrant, target: Target, meter: Meter) -> tuple[Connection, str]:
        if target != self._first:
            grant = msgspec.structs.replace(grant, grant_id=grant.grant_id + _REDIRECTED)
        self._judged = grant, target
        return await self._dialler.dial(await self._dialler.pin(grant, target), meter)

    def reconsider(self, service: EgressProxyPolicyService) -> None:
        """Raise ``PolicyChanged`` if policy no longer allows the present connection."""
        if self._judged is None:
            return
        grant, target = self._judged
        try:
            service.judge_target(grant, target)
        except EgressRefused as refused:
            raise PolicyChanged(
                f"no longer allowed: {refused.message}", host=target.host, port=target.port
            ) from refused


@dataclass
class _Running:
    """A running call. ``cut`` is set to the reason when policy ends it."""

    task: "asyncio.Task[Any]"
    connector: DialledConnector | None = None
    grant: EgressGrant | None = None
    cut: PolicyChanged | None = None


class BoundCredentials:
    """Puts the secrets of bindings into headers. Each use has its own policy decision and its own journal entry."""

    def __init__(self, secrets: SecretSource, observer: EgressObserver) -> None:
        self._secrets = secrets
        self._observer = observer

    async def prepare(self, grant: EgressGrant, target: Target, method: str, path: str, headers: Headers) -> Prepared:
        plan = plan_injection(grant, target, method, path, headers)
        values = await reveal_all(self._secrets, grant, plan, target)
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
                self._observer.observe(grant, used)
        return Prepared(headers=filled, redaction=ResponseScan(secret_patterns(plan, values)), secrets=tuple(values))


class FetchTool:
    """The executor. The journal has the events of a call before it ends."""

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
        self._client = FetchClient(observer, ca_file=ca_file)
        self._threads = ThreadPoolExecutor(RENDER_THREADS, thread_name_prefix="palyra-fetch")

    async def execute(self, plan: ExecutionPlan) -> ExecutorOutcome:
        call = call_of(plan, self._spec, self._directory, touched=self._spec.touches(plan.arguments))
        self._grants.enter(plan.call_id, call)
        self._grants.enter(plan.call_id + _REDIRECTED, msgspec.structs.replace(call, approved=False))
        task = asyncio.current_task()
        assert task is not None
        running = self._running[plan.call_id] = _Running(task)
        try:
            request = FetchRequest.parse(plan.arguments)
            return await run_fetch(self._client, self._access(plan, request), request, plan, self._threads)
        except asyncio.CancelledError:
            if running.cut is None or running.grant is None or task.uncancel():
                raise
            self._observer.observe(running.grant, Refused.of(running.cut, "fetch"))
            raise running.cut from None
        finally:
            del self._running[plan.call_id]
            self._grants.leave(plan.call_id)
            self._grants.leave(plan.call_id + _REDIRECTED)
            await asyncio.shield(self._observer.flush())
            self._observer.forget(plan.call_id)

    def reconsider(self, service: EgressProxyPolicyService) -> int:
        """End the fetches whose connection policy no longer allows. Return their number."""
        cut = 0
        for running in self._running.values():
            try:
                if running.connector is not None and running.cut is None:
                    running.connector.reconsider(service)
            except PolicyChanged as changed:
                running.cut = changed
                running.task.cancel()
                cut += 1
        return cut

    def close(self) -> None:
        self._threads.shutdown(wait=True)

    def _access(self, plan: ExecutionPlan, request: FetchRequest) -> FetchAccess:
        settings = self._settings
        grant = grant_of(plan, settings, parse_rules(settings.allowed_hosts), settings.bindings)
        running = self._running[plan.call_id]
        running.grant, running.connector = grant, DialledConnector(self._dialler, request.address.target)
        return FetchAccess(grant=grant, connector=running.connector, credentials=self._credentials)
