"""Upstream MCP servers: their tools in the catalog, and the instances that answer their calls.

An instance belongs to one principal, or to one run, unless the operator shares it. What it holds is decided for every
call that uses it: ``vault.use`` for each secret, ``egress.connect`` for each host, under that call's id.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from palyra.config.state_dir import StateDir
from palyra.egress.settings import EgressSettings
from palyra.errors import Denied, InvalidInput, LimitExceeded
from palyra.executors.mcp_upstream.folders import ServerFolders
from palyra.executors.mcp_upstream.instance_egress import InstanceListener
from palyra.executors.mcp_upstream.limits import (
    INSTANCES_FOR_OPERATORS,
    MAX_INSTANCES,
    MAX_INSTANCES_OF_PRINCIPAL,
    MAX_SERVER_OUTPUT_BYTES,
    SERVER_IDLE_SECONDS,
)
from palyra.executors.mcp_upstream.pin_tables import put_approved, put_seen, read_pins
from palyra.executors.mcp_upstream.pinning import Pin, UnknownServerTool, approve, look, require_in_use
from palyra.executors.mcp_upstream.settings import MCP_EXECUTOR, PLACEHOLDER, ServerPlan
from palyra.executors.mcp_upstream.spec import Listing, ToolDefinition, result_of_server, spec_of, words_of
from palyra.executors.network.grant import call_of
from palyra.executors.network.service import NetworkService
from palyra.executors.process.planted import report_running, report_to
from palyra.ids import Principal
from palyra.pipeline.catalog import Catalog
from palyra.pipeline.domain.budget import Usage
from palyra.pipeline.domain.call import ExecutionPlan, ExecutorOutcome, ToolFailed
from palyra.pipeline.domain.shares import is_operators_own
from palyra.policy.decision import Outcome
from palyra.sandbox.domain.process_run import ProcessCommand
from palyra.sandbox.domain.profile import NewProtectedPolicy, SandboxLimits, SandboxProfile
from palyra.sandbox.runner import ProcessRunner, RunnerSettings
from palyra.store.event import NewEvent
from palyra.vault.access import DecidedSecrets, SecretUse
from palyra.vault.reference import SecretRef

if TYPE_CHECKING:
    from palyra.executors.mcp_upstream.instance import McpInstance
    from palyra.store.port import Store

GROUP: Final = "mcp"
# How long an instance may live. Its calls have their own deadlines.
LIFE_MS: Final = 7 * 86_400_000


class UnknownServer(InvalidInput):
    code = "mcp.unknown_server"
    hint = "the setting mcp.servers names the servers there are; `palyra mcp servers` lists them"
    http_status = 404


class HostDenied(Denied):
    code = "mcp.host_denied"
    hint = (
        "a process that may reach a host is used by no call that may not: permit egress.connect to all hosts of the"
        " server for such calls, or describe a second server with fewer hosts"
    )


class TooManyServers(LimitExceeded):
    code = "mcp.too_many_instances"
    hint = "wait until calls of servers have ended: an instance that no call uses makes room for the next one"


class McpServers:
    name = MCP_EXECUTOR
    keeps_deadline = False

    def __init__(
        self,
        servers: Mapping[str, ServerPlan],
        state: StateDir,
        *,
        store: "Store",
        catalog: Catalog,
        egress: NetworkService,
        secrets: DecidedSecrets,
        settings: EgressSettings,
        protected_names: tuple[str, ...],
        actor: str,
    ) -> None:
        self._servers = servers
        self._state = state
        self._store = store
        self._catalog = catalog
        self._egress = egress
        self._secrets = secrets
        self._settings = settings
        self._protected = protected_names
        self._actor = actor
        self._folders = ServerFolders(state)
        self._instances: dict[tuple[str, ...], McpInstance] = {}
        self._finishing: set[asyncio.Task[None]] = set()
        self._pins: dict[str, dict[str, Pin]] = {name: read_pins(store, name) for name in servers}
        self._runner: ProcessRunner | None = None
        self._looking = asyncio.Lock()
        self._offer()

    def servers(self) -> dict[str, tuple[ServerPlan, dict[str, Pin]]]:
        return {name: (plan, self._pins[name]) for name, plan in self._servers.items()}

    def server(self, name: str) -> tuple[ServerPlan, dict[str, Pin]]:
        if name not in self._servers:
            raise UnknownServer(f"there is no server {name[:64]!r}")
        return self._servers[name], self._pins[name]

    def kept_folder(self, name: str) -> str:
        """Return the folder that all principals of the server shared before it had an isolation, if it is kept."""
        return self._folders.kept(name, self.server(name)[0])

    def offered(self) -> dict[str, tuple[str, ToolDefinition]]:
        """Map each tool's name to its server and its reviewed definition."""
        return {
            f"{server}.{pin.tool}": (server, pin.approved)
            for server, pins in self._pins.items()
            for pin in pins.values()
            if pin.approved is not None
        }

    async def execute(self, plan: ExecutionPlan) -> ExecutorOutcome:
        server, _, tool = plan.tool.partition(".")
        definition = require_in_use(self._pins[server].get(tool), plan.tool, plan.reviewed_digest)
        secrets = await self._decide_use(server, plan)
        while True:
            instance = self._instance(server, plan, secrets)
            waits = instance.is_taken
            async with instance.turn(plan) as is_there:
                if waits:
                    # Policies and secrets may have changed meanwhile.
                    secrets = await self._decide_use(server, plan)
                if not is_there or secrets != instance.secrets:
                    continue
                self._start(instance, plan)
                try:
                    result = await self._call(instance, server, tool, definition, plan)
                except asyncio.CancelledError:
                    # A cancelled call leaves nothing running.
                    await asyncio.shield(instance.close())
                    raise
            break
        error = ToolFailed(f"{plan.tool} failed: {words_of(result)}") if result["is_error"] else None
        return ExecutorOutcome(result=result, receipt=instance.receipt, error=error)

    async def _call(
        self, instance: "McpInstance", server: str, tool: str, definition: ToolDefinition, plan: ExecutionPlan
    ) -> dict[str, Any]:
        # The process that is about to be called has to list its tools: another process may list others.
        await self._take_listing(server, await instance.listing(self._servers[server].offers))
        require_in_use(self._pins[server].get(tool), plan.tool, plan.reviewed_digest)
        return result_of_server(await instance.call(definition, dict(plan.arguments)))

    async def look(self, server: str, *, actor: str) -> Listing:
        """Start the server without hosts and secrets, and record its definitions."""
        plan, _ = self.server(server)
        async with self._looking:
            instance = _new_instance(server, lambda _: None)
            placeholders = dict.fromkeys(plan.secrets, PLACEHOLDER)
            async with self._folders.for_review(server, plan) as folder:
                profile = self._profile(folder, msgspec.structs.replace(plan, hosts=()), placeholders)
                instance.start(self._processes(), profile, _command(plan), None)
                try:
                    listing = await instance.listing(plan.offers)
                finally:
                    await asyncio.shield(instance.close())
        await self._take_listing(server, listing, actor=actor)
        return listing

    async def approve(self, server: str, tools: Mapping[str, str], *, by: str, actor: str) -> list[Pin]:
        """Approve ``tools``, each with the digest of its reviewed definition."""
        _, pins = self.server(server)
        if missing := sorted(tools.keys() - pins.keys()):
            raise UnknownServerTool(f"{server} has not offered {missing[0][:64]!r}")
        now_ms = time.time_ns() // 1_000_000
        approved = [approve(pins[tool], digest, by, now_ms) for tool, digest in tools.items()]

        def work(tx: Any) -> None:
            for pin in approved:
                put_approved(tx, pin, actor=actor)

        await self._store.transact(work)
        self._take(server, approved)
        return approved

    async def close(self) -> None:
        for instance in tuple(self._instances.values()):
            await instance.close()
        if self._finishing:
            await asyncio.wait(self._finishing)
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.close()

    async def _take_listing(self, server: str, listing: Listing, *, actor: str | None = None) -> None:
        now_ms = time.time_ns() // 1_000_000
        changed = look(server, self._pins[server], listing, now_ms, reviewing=actor is not None)
        if not changed:
            return

        def work(tx: Any) -> None:
            for pin in changed:
                put_seen(tx, pin, actor=actor or self._actor)

        # In force first, recorded second: meanwhile no call uses a definition that was not reviewed.
        self._take(server, changed)
        await self._store.transact(work)

    def _take(self, server: str, changed: list[Pin]) -> None:
        self._pins[server] = {**self._pins[server], **{pin.tool: pin for pin in changed}}
        self._offer()

    def _offer(self) -> None:
        # A tool in quarantine stays in the catalog as it was approved, so that its caller gets the reason.
        most = self._settings.max_call_bytes
        self._catalog.replace_group(
            GROUP,
            [
                spec_of(server, self._servers[server], pin.approved, most)
                for server, pins in self._pins.items()
                for pin in pins.values()
                if pin.approved is not None
            ],
        )

    async def _decide_use(self, server: str, plan: ExecutionPlan) -> dict[str, str]:
        """Decide, on record, whether this call may use what an instance holds. Return its secrets by variable."""
        described = self._servers[server]
        if described.hosts:
            await self._decide_hosts(server, described, plan)
        if not described.secrets:
            return {}
        use = self._use_of(plan)
        return {
            name: (await self._secrets.reveal(SecretRef.parse(ref), use)).reveal()
            for name, ref in described.secrets.items()
        }

    async def _decide_hosts(self, server: str, described: ServerPlan, plan: ExecutionPlan) -> None:
        decided = self._egress.decide_hosts(plan, described.hosts)
        event = NewEvent(
            kind="mcp.hosts_decided",
            actor=self._actor,
            principal=plan.principal,
            run=plan.run_id,
            call=plan.call_id,
            payload={
                "server": server,
                "hosts": {host: decision.outcome.value for host, decision in decided.items()},
                "policies": sorted({policy for decision in decided.values() for policy in decision.policies}),
            },
        )
        await self._store.transact(lambda tx: tx.append(event))
        denied = sorted(host for host, decision in decided.items() if decision.outcome is not Outcome.ALLOW)
        if denied:
            raise HostDenied(
                f"{server} can reach {denied[0]}, and policy does not let this call of {plan.principal} connect there",
                hosts=denied,
            )

    def _use_of(self, plan: ExecutionPlan) -> SecretUse:
        spec = self._catalog.entry(plan.tool).spec
        call = call_of(plan, spec, self._egress.directory, touched=spec.touches(plan.arguments))
        return SecretUse(
            principal=call.principal,
            channel=call.channel,
            run=plan.run_id,
            call=plan.call_id,
            tool=call.tool,
            approved=call.approved,
        )

    def policy_changed(self) -> None:
        """End the instances that hold what none of their principals' last calls could use any more."""
        for instance in tuple(self._instances.values()):
            if not any(self._may_use(instance.server, plan) for plan in instance.last_calls.values()):
                self._finish(instance.close())

    def _may_use(self, server: str, plan: ExecutionPlan) -> bool:
        described = self._servers[server]
        if plan.tool not in self._catalog:
            return False
        hosts = self._egress.decide_hosts(plan, described.hosts)
        return all(decision.outcome is Outcome.ALLOW for decision in hosts.values()) and all(
            self._secrets.allows(SecretRef.parse(ref), self._use_of(plan)) for ref in described.secrets.values()
        )

    def _instance(self, server: str, plan: ExecutionPlan, secrets: Mapping[str, str]) -> "McpInstance":
        """Return the instance of this call. A process that holds an older value of a secret is not used again."""
        key = _key(server, self._servers[server], plan)
        known = self._instances.get(key)
        if known is not None and known.secrets == secrets:
            return known
        if known is not None:
            self._forget(key, known)
            known.retire()
        self._make_room(plan)
        described = self._servers[server]
        instance = _new_instance(server, lambda ended: self._end(key, ended))
        instance.started_for = plan.principal
        instance.secrets = secrets
        if described.hosts:
            instance.listener = InstanceListener(self._egress, plan, described.hosts)
        # Another call of the same key then waits for this instance and starts none.
        self._instances[key] = instance
        return instance

    def _make_room(self, plan: ExecutionPlan) -> None:
        """Refuse one more instance, or end an idle one for it: first one of this principal, else of the largest."""
        counts = Counter(each.started_for for each in self._instances.values())
        own = is_operators_own(self._egress.directory, Principal.parse(plan.principal), plan.channel)
        most = MAX_INSTANCES if own else MAX_INSTANCES - INSTANCES_FOR_OPERATORS
        if counts[plan.principal] >= MAX_INSTANCES_OF_PRINCIPAL:
            if not self._end_idle(plan.principal):
                raise TooManyServers(
                    f"{plan.principal} has {counts[plan.principal]} instances of servers at work, all of its share",
                    share=MAX_INSTANCES_OF_PRINCIPAL,
                )
        elif len(self._instances) >= most and not any(self._end_idle(holder) for holder, _ in counts.most_common()):
            raise TooManyServers(f"{len(self._instances)} instances of servers are at work")

    def _end_idle(self, principal: str) -> bool:
        """End the oldest instance of the principal that no call uses. Return whether there was one."""
        for key, instance in self._instances.items():
            if instance.started_for == principal and instance.is_idle:
                self._forget(key, instance)
                instance.retire()
                return True
        return False

    def _start(self, instance: "McpInstance", plan: ExecutionPlan) -> None:
        """Start the process if this call is the instance's first. No other call runs before it is started."""
        instance.last_calls[plan.principal] = msgspec.structs.replace(plan, arguments={}, usage=Usage())
        if instance.is_started:
            return
        described = self._servers[instance.server]
        try:
            folder = self._folders.of(instance.server, described, plan)
            profile = self._profile(folder, described, instance.secrets)
            if instance.listener is not None:
                profile = instance.listener.add_authorities(profile)
            instance.start(self._processes(), profile, _command(described), instance.listener)
        except BaseException as error:
            self._end(_key(instance.server, described, plan), instance)
            instance.fail(error if isinstance(error, Exception) else instance.gone_error("its start was cancelled"))
            raise

    def _end(self, key: tuple[str, ...], instance: "McpInstance") -> None:
        self._forget(key, instance)
        if instance.last_calls:
            # A server writes in a workspace for many calls; the last of them reports what it planted.
            plan = next(reversed(instance.last_calls.values()))
            self._finish(report_running(report_to(self._store, self._actor), plan, instance.running))
        if self._servers[instance.server].isolation == "run" and key not in self._instances:
            self._finish(asyncio.to_thread(self._folders.release(instance.server, key[-1])))

    def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it beside the calls. ``close`` waits for it."""
        task = asyncio.create_task(work, name="mcp end")
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    def _forget(self, key: tuple[str, ...], instance: "McpInstance") -> None:
        if self._instances.get(key) is instance:
            del self._instances[key]

    def _profile(self, folder: Path, plan: ServerPlan, secrets: Mapping[str, str]) -> SandboxProfile:
        return SandboxProfile(
            workspace_root=str(folder.resolve()),
            read_only=plan.read_only,
            protected_names=self._protected,
            seals_git=True,
            appearing_protected=NewProtectedPolicy.MOVE_ASIDE if plan.workspace else NewProtectedPolicy.KEEP,
            limits=SandboxLimits(
                cpu_seconds=plan.cpu_seconds,
                memory_bytes=plan.memory_bytes,
                max_output_bytes=MAX_SERVER_OUTPUT_BYTES,
                kept_output_bytes=0,
                timeout_ms=LIFE_MS,
            ),
            allowed_egress_hosts=plan.hosts,
            env=tuple(sorted({**plan.env, **secrets}.items())),
            allow_interpreters=plan.allow_interpreters,
            tool_roots=tuple(str(Path(root).expanduser()) for root in plan.tool_roots),
        )

    def _processes(self) -> ProcessRunner:
        if self._runner is None:
            scratch = self._state.path("sandbox")
            scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Without prewarming: an instance serves many calls.
            self._runner = ProcessRunner(
                RunnerSettings(max_running=MAX_INSTANCES + 1, prewarm=False, scratch=str(scratch))
            )
        return self._runner


def _key(server: str, described: ServerPlan, plan: ExecutionPlan) -> tuple[str, ...]:
    match described.isolation:
        case "shared":
            return (server,)
        case "run":
            return (server, plan.principal, plan.run_id)
        case _:
            return (server, plan.principal)


def _new_instance(server: str, ended: "Callable[[McpInstance], None]") -> "McpInstance":
    # The protocol's library takes half a second to load.
    from palyra.executors.mcp_upstream.instance import McpInstance

    return McpInstance(server, SERVER_IDLE_SECONDS, ended)


def _command(plan: ServerPlan) -> ProcessCommand:
    return ProcessCommand(command=plan.command, args=plan.args)
