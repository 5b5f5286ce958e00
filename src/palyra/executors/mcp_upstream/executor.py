"""Upstream MCP servers: their tools in the catalog, and one instance for each run that calls them.

An instance belongs to one run, so that no other run reads its state. Its egress is that of the call that started it,
with that call's principal and budget.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from palyra.config.state_dir import StateDir
from palyra.egress.settings import EgressSettings
from palyra.errors import InvalidInput, LimitExceeded
from palyra.executors.mcp_upstream.limits import MAX_INSTANCES, MAX_SERVER_OUTPUT_BYTES, SERVER_IDLE_SECONDS
from palyra.executors.mcp_upstream.pin_tables import put_approved, put_seen, read_pins
from palyra.executors.mcp_upstream.pinning import Pin, UnknownServerTool, approve, look, require_in_use
from palyra.executors.mcp_upstream.settings import MCP_EXECUTOR, PLACEHOLDER, ServerPlan
from palyra.executors.mcp_upstream.spec import Listing, ToolDefinition, result_of_server, spec_of, words_of
from palyra.executors.network.grant import call_of
from palyra.executors.network.service import NetworkService
from palyra.pipeline.catalog import Catalog
from palyra.pipeline.domain.call import ExecutionPlan, ExecutorOutcome, ToolFailed
from palyra.sandbox.domain.process_run import ProcessCommand
from palyra.sandbox.domain.profile import SandboxLimits, SandboxProfile
from palyra.sandbox.runner import ProcessRunner, RunnerSettings
from palyra.vault.access import DecidedSecrets, SecretUse
from palyra.vault.reference import SecretRef

if TYPE_CHECKING:
    from palyra.executors.mcp_upstream.instance import McpInstance
    from palyra.store.port import Store

GROUP: Final = "mcp"
FOLDER: Final = "mcp"
# How long an instance may live. Its calls have their own deadlines.
LIFE_MS: Final = 7 * 86_400_000


class UnknownServer(InvalidInput):
    code = "mcp.unknown_server"
    hint = "the setting mcp.servers names the servers there are; `palyra mcp servers` lists them"
    http_status = 404


class TooManyServers(LimitExceeded):
    code = "mcp.too_many_instances"
    hint = "wait until other runs have ended, or their servers have been idle for a while"


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
        self._instances: dict[tuple[str, str], McpInstance] = {}
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
        instance = await self._instance(server, plan)
        try:
            result = await self._call(instance, server, tool, definition, plan)
        except asyncio.CancelledError:
            # A cancelled call leaves nothing running.
            await asyncio.shield(instance.close())
            raise
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
            profile = self._profile(server, msgspec.structs.replace(plan, hosts=()), placeholders)
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
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.close()

    async def _take_listing(self, server: str, listing: Listing, *, actor: str | None = None) -> None:
        changed = look(server, self._pins[server], listing, time.time_ns() // 1_000_000)
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

    async def _instance(self, server: str, plan: ExecutionPlan) -> "McpInstance":
        key = (server, plan.run_id)
        known = self._instances.get(key)
        if known is not None:
            return known
        if len(self._instances) >= MAX_INSTANCES:
            raise TooManyServers(f"{len(self._instances)} instances of servers run already")
        instance = _new_instance(server, lambda ended: self._forget(key, ended))
        # Before the first await: another call of this run then waits for this instance and starts none.
        self._instances[key] = instance
        try:
            described = self._servers[server]
            profile = self._profile(server, described, await self._reveal_secrets(described, plan))
            profile, listener = self._egress.prepare_listener(plan, profile)
            instance.start(self._processes(), profile, _command(described), listener)
        except BaseException as error:
            self._forget(key, instance)
            instance.fail(error if isinstance(error, Exception) else instance.gone_error("its start was cancelled"))
            raise
        return instance

    def _forget(self, key: tuple[str, str], instance: "McpInstance") -> None:
        if self._instances.get(key) is instance:
            del self._instances[key]

    async def _reveal_secrets(self, described: ServerPlan, plan: ExecutionPlan) -> dict[str, str]:
        """Reveal the server's secrets; the decision ``vault.use`` on this call is made for each."""
        if not described.secrets:
            return {}
        spec = self._catalog.entry(plan.tool).spec
        call = call_of(plan, spec, self._egress.directory, touched=spec.touches(plan.arguments))
        use = SecretUse(
            principal=call.principal,
            channel=call.channel,
            run=plan.run_id,
            call=plan.call_id,
            tool=call.tool,
            approved=call.approved,
        )
        return {
            name: (await self._secrets.reveal(SecretRef.parse(ref), use)).reveal()
            for name, ref in described.secrets.items()
        }

    def _profile(self, server: str, plan: ServerPlan, secrets: Mapping[str, str]) -> SandboxProfile:
        folder = Path(plan.workspace).expanduser() if plan.workspace else self._state.path(FOLDER) / server
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return SandboxProfile(
            workspace_root=str(folder.resolve()),
            read_only=plan.read_only,
            protected_names=self._protected,
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


def _new_instance(server: str, ended: "Callable[[McpInstance], None]") -> "McpInstance":
    # The protocol's library takes half a second to load.
    from palyra.executors.mcp_upstream.instance import McpInstance

    return McpInstance(server, SERVER_IDLE_SECONDS, ended)


def _command(plan: ServerPlan) -> ProcessCommand:
    return ProcessCommand(command=plan.command, args=plan.args)
