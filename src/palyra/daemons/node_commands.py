"""Commands of a device's configuration, in the process sandbox of that device."""

import asyncio
from pathlib import Path
from typing import Any

from palyra.config.settings import SandboxSettings
from palyra.nodes.host.command_plan import CommandPlan
from palyra.sandbox.command import ProcessCommand
from palyra.sandbox.process_executor import shown
from palyra.sandbox.process_runner import ProcessRunner, RunnerSettings
from palyra.sandbox.profile import AppearingProtected, EgressEnforcementMode, SandboxLimits, SandboxProfile, SandboxTier


class SandboxedCommands:
    """Tier and limits are those of the device's own settings. Strict egress gives a command no network at all: a device
    has no proxy that could serve allowed hosts."""

    def __init__(self, settings: SandboxSettings, protected_names: tuple[str, ...], folder: Path) -> None:
        self._settings = settings
        self._protected = protected_names
        self._folder = folder
        self._runner: ProcessRunner | None = None

    async def run(
        self, plan: CommandPlan, words: tuple[str, ...], *, timeout_ms: int, max_output_bytes: int
    ) -> dict[str, Any]:
        workspace = plan.workspace or str(await asyncio.to_thread(self._made, "workspace"))
        profile = self._profile(plan, workspace, timeout_ms, max_output_bytes)
        command = ProcessCommand(command=words[0], args=words[1:], timeout_ms=timeout_ms)
        if self._runner is None:
            scratch = await asyncio.to_thread(self._made, "scratch")
            self._runner = ProcessRunner(
                RunnerSettings(
                    enabled=self._settings.enabled,
                    max_running=self._settings.max_running,
                    max_waiting=self._settings.max_waiting,
                    scratch=str(scratch),
                )
            )
        return shown(await self._runner.run_constrained_process(profile, command))

    async def close(self) -> None:
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await asyncio.shield(runner.close())

    def _profile(self, plan: CommandPlan, workspace: str, timeout_ms: int, max_output_bytes: int) -> SandboxProfile:
        settings = self._settings
        return SandboxProfile(
            workspace_root=workspace,
            tier=SandboxTier(settings.tier),
            read_only=settings.read_only or plan.read_only,
            protected_names=self._protected,
            limits=SandboxLimits(
                cpu_seconds=settings.cpu_seconds,
                memory_bytes=settings.memory_bytes,
                pids=settings.pids,
                open_files=settings.open_files,
                file_bytes=settings.file_bytes,
                max_output_bytes=min(settings.max_output_bytes, max_output_bytes),
                timeout_ms=timeout_ms,
            ),
            egress=EgressEnforcementMode(settings.egress),
            env=tuple(sorted(settings.env.items())),
            allow_interpreters=settings.allow_interpreters or plan.interpreter,
            allowed_executables=settings.allowed_executables or None,
            appearing_protected=AppearingProtected(settings.appearing_protected),
            tool_roots=settings.tool_roots,
        )

    def _made(self, name: str) -> Path:
        path = self._folder / name
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path
