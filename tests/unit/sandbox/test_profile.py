"""Profiles: what they refuse, and what each tier demands."""

import msgspec
import pytest

from palyra.sandbox import limits
from palyra.sandbox.domain.profile import (
    BadProfile,
    EgressEnforcementMode,
    Layer,
    Receipt,
    ReceiptLine,
    SandboxLimits,
    SandboxProfile,
    SandboxTier,
    UnsupportedPlatform,
    refuse_unmet,
    unsupported,
)


@pytest.mark.parametrize("root", ["relative", "/", "/a/../b", "/a//b", "/a/", "/a/./b", "/a\0b", ""])
def test_a_workspace_is_an_absolute_path_in_its_shortest_spelling(root: str) -> None:
    with pytest.raises(BadProfile):
        SandboxProfile(workspace_root=root)


@pytest.mark.parametrize("name", ["", "A=B", "1A", "A-B", "Ä", "A\0", "HOME", "PWD", "TMPDIR"])
def test_an_environment_name_is_plain_and_not_the_sandbox_s_own(name: str) -> None:
    with pytest.raises(BadProfile):
        SandboxProfile(workspace_root="/w", env=((name, "x"),))


def test_an_environment_value_has_no_nul_and_fits() -> None:
    for value in ("a\0b", "x" * 40_000):
        with pytest.raises(BadProfile):
            SandboxProfile(workspace_root="/w", env=(("A", value),))


def test_tool_roots_are_absolute_and_few() -> None:
    for roots in (("opt",), ("/opt/..",), tuple(f"/r{number}" for number in range(17))):
        with pytest.raises(BadProfile):
            SandboxProfile(workspace_root="/w", tool_roots=roots)


def test_the_default_is_isolated_with_strict_egress() -> None:
    profile = SandboxProfile(workspace_root="/w")
    assert (profile.tier, profile.egress, profile.allow_interpreters) == (SandboxTier.C, "strict", False)
    assert Layer.NETWORK_NAMESPACE in profile.required_layers


def test_only_named_hosts_under_strict_egress_have_a_door() -> None:
    hosts = ("example.org",)
    assert SandboxProfile(workspace_root="/w", allowed_egress_hosts=hosts).reaches_hosts
    assert not SandboxProfile(workspace_root="/w").reaches_hosts
    shared = EgressEnforcementMode.NONE
    assert not SandboxProfile(workspace_root="/w", allowed_egress_hosts=hosts, egress=shared).reaches_hosts


def test_shared_network_does_not_demand_a_namespace_and_policy_can_demand_more() -> None:
    shared = SandboxProfile(workspace_root="/w", egress=EgressEnforcementMode.NONE)
    assert Layer.NETWORK_NAMESPACE not in shared.required_layers
    more = SandboxProfile(workspace_root="/w", require=frozenset({Layer.CGROUP_MEMORY}))
    assert Layer.CGROUP_MEMORY in more.required_layers
    limited = SandboxProfile(workspace_root="/w", tier=SandboxTier.B)
    assert Layer.USER_NAMESPACE not in limited.required_layers
    assert Layer.RLIMITS in limited.required_layers


@pytest.mark.parametrize("field", ["cpu_seconds", "memory_bytes", "pids", "open_files", "file_bytes", "timeout_ms"])
def test_a_limit_of_nothing_is_refused_when_read(field: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({field: 0}, SandboxLimits)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/etc/palyra",
        "/etc/palyra/",
        "/etc/palyra/a/b",
        "/etc/palyra/..",
        "/etc/palyra/.a",
        "a",
        "/run/a",
    ],
)
def test_extra_files_have_a_place_of_their_own(path: str) -> None:
    with pytest.raises(BadProfile):
        SandboxProfile(workspace_root="/w", extra_files=((path, b""),))


def test_extra_files_are_few_small_and_different() -> None:
    def made(*files: tuple[str, bytes]) -> SandboxProfile:
        return SandboxProfile(workspace_root="/w", extra_files=files)

    most = [(f"/etc/palyra/{number}", b"x") for number in range(limits.MAX_EXTRA_FILES)]
    made(*most)
    made(("/etc/palyra/ca-bundle.pem", bytes(limits.MAX_EXTRA_FILE_BYTES)))
    for files in (
        [*most, ("/etc/palyra/more", b"")],
        [most[0], most[0]],
        [("/etc/palyra/big", bytes(limits.MAX_EXTRA_FILE_BYTES + 1))],
    ):
        with pytest.raises(BadProfile):
            made(*files)


def line(layer: Layer, *, held: bool = True, got: str = "seen") -> ReceiptLine:
    return ReceiptLine(layer=layer, asked="asked", got=got, held=held)


def test_lines_are_in_the_order_of_layers_and_the_last_look_stands() -> None:
    receipt = Receipt.of([line(Layer.SECCOMP, got="old"), line(Layer.PID_NAMESPACE)])
    receipt = receipt.with_lines([line(Layer.SECCOMP, got="new")])
    assert [each["layer"] for each in receipt.as_dicts()] == ["pid_namespace", "seccomp"]
    assert receipt.as_dicts()[1] == {"layer": "seccomp", "asked": "asked", "got": "new", "held": True}
    assert receipt.line(Layer.EGRESS) is None


def test_what_is_required_and_held_passes() -> None:
    refuse_unmet(Receipt.of([line(Layer.SECCOMP), line(Layer.EGRESS, held=False)]), frozenset({Layer.SECCOMP}))


def test_a_required_layer_that_failed_or_was_not_mentioned_is_named() -> None:
    receipt = Receipt.of([line(Layer.SECCOMP, held=False, got="Seccomp 0")])
    with pytest.raises(UnsupportedPlatform) as refused:
        refuse_unmet(receipt, frozenset({Layer.SECCOMP, Layer.CGROUP_PIDS}))
    assert refused.value.code == "sandbox.unsupported_platform"
    assert refused.value.details == {"kind": "unsupported_platform", "layers": ["seccomp", "cgroup_pids"]}
    assert "Seccomp 0" in refused.value.message
    assert "cgroup_pids: not enforced" in refused.value.message


def test_a_fix_becomes_the_hint() -> None:
    error = unsupported([line(Layer.SECCOMP, held=False)], {Layer.SECCOMP: "do this"})
    assert error.hint == "do this"
