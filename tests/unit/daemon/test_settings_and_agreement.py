"""The settings tree: safe defaults, documented leaves, rules between values."""

import msgspec
import pytest

from palyra import limits
from palyra.config.setting_types import InvalidSetting, known_settings, value_of
from palyra.daemon.settings import AccessSettings, Settings, check_together
from palyra.egress.domain.credential import CredentialBindingPlan
from palyra.egress.settings import EgressSettings
from palyra.pipeline.settings import ApprovalsSettings, ToolsSettings
from palyra.policy.settings import PolicySettings
from palyra.sandbox.settings import SandboxSettings
from palyra.vault.settings import VaultSettings
from palyra.workspace.settings import WorkspaceSettings


def test_the_defaults_are_safe() -> None:
    settings = Settings()
    assert settings.daemon.host == "127.0.0.1"
    assert settings.daemon.port == 7142
    assert settings.tools.preapproved == ()
    assert settings.tools.allowed == (
        *("echo", "sleep", "fs.*", "process.*", "http.fetch", "skill.*", "node.*", "browser.*"),
    )
    assert settings.access.operators == ("user:operator",)
    assert settings.nodes.host == "127.0.0.1" and settings.nodes.advertise == ()
    assert settings.access.groups == {}
    assert {".git/hooks", ".git/config", ".env*", ".vscode", ".github/workflows"} <= set(
        settings.workspace.protected_names
    )
    check_together(settings)


@pytest.mark.promise("P-budget-exact")
def test_budget_and_journal_defaults_come_from_the_limits() -> None:
    settings = Settings()
    assert settings.budget.calls == limits.DEFAULT_MAX_CALLS_PER_RUN
    assert settings.budget.browser_actions == limits.DEFAULT_RUN_BROWSER_ACTIONS
    assert settings.journal.checkpoint_seconds == limits.CHECKPOINT_EVERY_SECONDS
    assert settings.tools.max_timeout_ms == limits.MAX_CALL_TIMEOUT_MS


def test_every_setting_is_described_in_one_line_and_its_default_is_valid() -> None:
    for info in known_settings(Settings).values():
        assert info.description.endswith(".")
        assert "\n" not in info.description
        assert msgspec.convert(msgspec.to_builtins(info.default), info.type) == info.default


def test_settings_are_known_by_dotted_name_and_variable() -> None:
    info = known_settings(Settings)["tools.max_output_bytes"]
    assert (info.section, info.key, info.env_name) == ("tools", "max_output_bytes", "PALYRA_TOOLS__MAX_OUTPUT_BYTES")
    assert len({info.env_name for info in known_settings(Settings).values()}) == len(known_settings(Settings))
    assert value_of(Settings(), "tools.max_output_bytes") == limits.MAX_TOOL_OUTPUT_BYTES


@pytest.mark.parametrize(
    ("settings", "blamed"),
    [
        (Settings(tools=ToolsSettings(timeout_ms=2000, max_timeout_ms=1000)), "tools.timeout_ms"),
        (Settings(approvals=ApprovalsSettings(ttl_seconds=10, max_ttl_seconds=9)), "approvals.ttl_seconds"),
        (Settings(access=AccessSettings(operators=("user:a", "bob"))), "access.operators"),
        (Settings(access=AccessSettings(operators=("user:*",))), "access.operators"),
        (Settings(workspace=WorkspaceSettings(root="work")), "workspace.root"),
        (Settings(policy=PolicySettings(dir="../policies")), "policy.dir"),
    ],
)
def test_values_that_contradict_each_other_are_refused(settings: Settings, blamed: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        check_together(settings)
    assert blamed in caught.value.message
    assert blamed in caught.value.details["settings"]


def test_absolute_and_home_paths_and_equal_bounds_pass() -> None:
    check_together(
        Settings(
            workspace=WorkspaceSettings(root="/srv/work"),
            policy=PolicySettings(dir="~/policies"),
            tools=ToolsSettings(timeout_ms=1000, max_timeout_ms=1000),
        )
    )


@pytest.mark.parametrize(
    ("settings", "blamed"),
    [
        (Settings(sandbox=SandboxSettings(allowed_hosts=("a.example",))), "egress.allowed_hosts"),
        (
            Settings(
                sandbox=SandboxSettings(allowed_hosts=("a.example:22",)),
                egress=EgressSettings(allowed_hosts=("a.example",)),
            ),
            "egress.allowed_hosts",
        ),
        (Settings(egress=EgressSettings(allowed_hosts=("*",))), "egress.allowed_hosts"),
        (Settings(egress=EgressSettings(private_targets=("127.1",))), "egress.private_targets"),
        (Settings(egress=EgressSettings(plain_targets=("127.1:8080",))), "egress.plain_targets"),
        # Of a host without a port nobody knows which one has no TLS: 443 among them would be a surprise.
        (Settings(egress=EgressSettings(plain_targets=("lan.test",))), "egress.plain_targets"),
        (Settings(egress=EgressSettings(static_hosts={"a b": ("1.2.3.4",)})), "egress.static_hosts"),
        (Settings(egress=EgressSettings(static_hosts={"a.example": ("1.2.3",)})), "egress.static_hosts"),
        (
            Settings(
                egress=EgressSettings(
                    bindings=(CredentialBindingPlan(header_name="Host", secret_ref="a/b", hosts=("a",)),)
                )
            ),
            "egress.bindings",
        ),
        (Settings(egress=EgressSettings(ca_file="ca.pem")), "egress.ca_file"),
        (Settings(vault=VaultSettings(key_file="key")), "vault.key_file"),
    ],
)
def test_egress_settings_that_could_never_hold_are_refused(settings: Settings, blamed: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        check_together(settings)
    assert blamed in error.value.details["settings"]


def test_nothing_goes_out_by_default_and_programs_get_a_part_of_what_is_allowed() -> None:
    assert Settings().egress.allowed_hosts == Settings().egress.private_targets == ()
    check_together(
        Settings(
            sandbox=SandboxSettings(allowed_hosts=("a.sub.example", "*.b.sub.example:443", "c.example")),
            egress=EgressSettings(allowed_hosts=("*.sub.example", "c.example:80", "c.example:443")),
        )
    )
