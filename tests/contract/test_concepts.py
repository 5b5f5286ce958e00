"""docs/reference/concepts.md: every concept that was asked for is there, and what it points to exists."""

import importlib
import re
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from palyra.cli.main import root

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "reference" / "concepts.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| in the texts"))
]
CODE = re.compile(r"`([^`]+)`")
# Every name of code in the texts.
REQUIRED = [
    "WorkerFleetManager",
    "WorkerAttestation",
    "WorkerFleetPolicy",
    "WorkerLifecycleState",
    "WorkerAttestationExpectation",
    "worker_id",
    "image_digest_sha256",
    "egress_proxy_attested",
    "wit_abi_version",
    "NodeService",
    "NodeRpcServiceImpl",
    "IdentityManager",
    "WorkerApprovalGrant",
    "WorkerWorkspaceScope",
    "EgressProxyPolicyService",
    "allow_private_targets",
    "CredentialBindingPlan",
    "NodeRuntimeState",
    "node-runtime.v1.json",
    "DevicePairingCodeRecord",
    "PendingApproval",
    "console_approval_decision_handler",
    "DeviceCapabilityView",
    "PersistedNodeRuntimeState",
    "DevicePairingRequestRecord",
    "CapabilityRequestRecord",
    "console_nodes_list_handler",
    "ToolCallConfig",
    "ToolAttestation",
    "decide_tool_call",
    "execute_tool_call",
    "max_calls_per_run",
    "run_constrained_process",
    "SandboxProcessRunner",
    "max_output_bytes",
    "workspace_root",
    "validate_argument_workspace_scope",
    "MAX_PROCESS_RUNNER_TOOL_INPUT_BYTES",
    "EgressEnforcementMode",
    "allowed_egress_hosts",
    "CAPTURE_CHUNK_BYTES",
    "SandboxProcessRunErrorKind",
    "WasmPluginRunnerPolicy",
    "run_wasm_plugin",
    "CapabilityGrantSet",
    "max_memory_bytes",
    "WasmRuntime",
    "RuntimeLimits",
    "HOST_CAPABILITIES_IMPORT_MODULE",
    "SkillManifest",
    "skill.toml",
    "http_egress_allowlist",
    "read_roots",
    "audit_skill_artifact_security",
    "SkillExecutionStatus",
    "InstalledSkillsIndex",
    "console_skills_list_handler",
    "skill_status",
    "upsert_skill_status",
    "write_skill_builder_scaffold",
    "ResolvedInstalledSkillModule",
    "CreateSession",
    "BrowserProfileRecord",
    "persistence_enabled",
    "PersistedSessionSnapshot",
    "PersistedStateStore",
    "SessionBudget",
    "ChromiumSessionProxy",
    "max_navigation_timeout_ms",
    "max_session_lifetime_ms",
    "max_screenshot_bytes",
    "max_response_bytes",
    "max_observe_snapshot_bytes",
    "max_actions_per_session",
    "max_actions_per_window",
    "DEFAULT_MAX_TABS_PER_SESSION",
    "CloseSession",
    "idle_ttl_ms",
    "navigate_with_guards",
    "handle_chromium_session_socks5_client",
    "DownloadSandboxSession",
    "DOWNLOAD_MAX_FILE_BYTES",
    "DOWNLOAD_MAX_TOTAL_BYTES_PER_SESSION",
    "PALYRA_BROWSERD_STATE_ENCRYPTION_KEY",
    "profiles.enc",
    "persistence_id",
    "ChromiumObserveSnapshot",
    "Click",
    "Type",
    "Scroll",
    "run_chromium_blocking",
    "BrowserService",
    "console_browser_profiles_list_handler",
    "browser.profile.created",
    "STATE_KEY_LEN",
    "CLEANUP_INTERVAL_MS",
    "ProcessExec",
    "Network",
    "SecretsRead",
    "FilesystemWrite",
    "sandbox-exec",
    "Quarantined",
    "Orphaned",
    "Available",
    "Busy",
    "bubblewrap",
    "Seatbelt",
    "palyrad",
    "palyra-browserd",
    "palyra-plugins-runtime",
    "palyra-skills",
    "TlsConnectInfo",
    "device_id",
    "run_id",
    "browser_v1",
    "headless_chrome",
    "--headless",
    "--disable-gpu",
    "--proxy-server",
    "--unshare-net",
    "QuotaExceeded",
    "validate",
    "HTTP",
    "SECRET",
    "STORAGE",
    "CHANNEL",
]


def found(dotted: str) -> Any:
    """A module, or what a module has."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            value = getattr(value, name)
        return value
    raise ModuleNotFoundError(dotted)


def test_every_name_of_the_texts_is_in_the_first_column() -> None:
    first = "\n".join(row[0] for row in ROWS)
    assert [name for name in REQUIRED if name not in first] == []


@pytest.mark.parametrize("row", ROWS, ids=[row[0][:60] for row in ROWS])
def test_what_a_row_points_to_exists(row: list[str]) -> None:
    _, here, see = row
    ours = [name for name in CODE.findall(here) if name.startswith("palyra.")]
    assert ours, here
    for name in ours:
        assert found(name) is not None
    (shown,) = CODE.findall(see)
    if shown.startswith("tests/"):
        assert (ROOT / shown).is_file()
        return
    program, *words = shown.split()
    assert program == "palyra"
    command: click.Command | None = root
    for word in words:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
        assert command is not None, shown


def test_the_numbers_of_the_texts_are_the_numbers_here() -> None:
    from palyra.browser.domain.budget import SessionBudget
    from palyra.browser.domain.limits import SWEEP_SECONDS
    from palyra.browser.profiles.encryption import KEY_BYTES
    from palyra.limits import MIB
    from palyra.wasm.domain.grants import HANDLE_BASE
    from palyra.wasm.domain.limits import RuntimeLimits

    budget = msgspec.structs.asdict(SessionBudget())
    assert budget["max_tabs_per_session"] == 32 and KEY_BYTES == 32 and SWEEP_SECONDS * 1000 == 15_000
    assert (budget["max_download_bytes"], budget["max_session_download_bytes"]) == (8 * MIB, 32 * MIB)
    assert RuntimeLimits().max_memory_bytes == 64 * MIB
    assert list(HANDLE_BASE.values()) == [10_000, 20_000, 30_000, 40_000]
