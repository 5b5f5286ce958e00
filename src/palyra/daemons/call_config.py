"""The boundaries of every call, from the settings."""

from pathlib import Path

import msgspec

from palyra.clock import MS_PER_SECOND
from palyra.config.settings import Settings
from palyra.config.state_dir import StateDir
from palyra.policy.entities import EntityDirectory
from palyra.tools.budget import RunBudget
from palyra.tools.call import ToolCallConfig


def tool_call_config(settings: Settings, state: StateDir, directory: EntityDirectory) -> ToolCallConfig:
    root = Path(settings.workspace.root).expanduser() if settings.workspace.root else state.path("workspace")
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return ToolCallConfig(
        directory=directory,
        workspace=str(root.resolve()),
        timeout_ms=settings.tools.timeout_ms,
        max_timeout_ms=settings.tools.max_timeout_ms,
        max_output_bytes=settings.tools.max_output_bytes,
        max_concurrent_calls=settings.tools.max_concurrent_calls,
        run_budget=msgspec.convert(settings.budget, RunBudget, from_attributes=True),
        approval_ttl_ms=settings.approvals.ttl_seconds * MS_PER_SECOND,
        max_approval_ttl_ms=settings.approvals.max_ttl_seconds * MS_PER_SECOND,
    )
