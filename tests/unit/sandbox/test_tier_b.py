from typing import Any

from palyra.sandbox.domain.launch_spec import CgroupEntry, LaunchSpec
from palyra.sandbox.domain.profile import EgressEnforcementMode, Layer, SandboxLimits, SandboxProfile, SandboxTier
from palyra.sandbox.tier_b import DEVICES, SYSTEM_PATHS, environment_of_tier_b, receipt_of_tier_b, spec_of_tier_b


def profile(**changes: Any) -> SandboxProfile:
    return SandboxProfile(workspace_root="/work", tier=SandboxTier.B, **changes)


def spec(wanted: SandboxProfile, **changes: Any) -> LaunchSpec:
    settings: dict[str, Any] = {
        "cwd": "/work/sub",
        "home": "/scratch/call-1",
        "seccomp": b"filter",
        "tasks_of_user": 100,
        "memory_by_cgroup": False,
        "cgroup": CgroupEntry(v1=("/cgroup/1",)),
        "landlock": True,
    }
    return spec_of_tier_b(wanted, (b"ls", b"-la"), b"/usr/bin/ls", **{**settings, **changes})


def test_the_program_gets_its_words_its_folder_and_every_restriction() -> None:
    made = spec(profile())
    assert made.argv == (b"ls", b"-la") and made.executable == b"/usr/bin/ls" and made.cwd == b"/work/sub"
    assert made.no_new_privs and made.new_session and made.seccomp == b"filter"
    assert made.cgroup.v1 == ("/cgroup/1",) and made.pass_fds == () and made.data_fds == ()


def test_only_the_workspace_and_the_folder_of_the_call_may_be_written() -> None:
    rules = spec(profile(tool_roots=("/opt/tools",))).landlock
    assert rules is not None and rules.write == ("/work", "/scratch/call-1") and rules.devices == DEVICES
    assert set(rules.read) == {*SYSTEM_PATHS, "/opt/tools"}
    hold = spec(profile(read_only=True)).landlock
    assert hold is not None and hold.write == ("/scratch/call-1",) and "/work" in hold.read
    assert spec(profile(), landlock=False).landlock is None
    private = ("/", "/home", "/root", "/etc", "/var", "/proc", "/tmp", "/dev", "/run", "/sys")
    assert not set(private) & {*rules.read, *rules.write}


def test_tcp_is_closed_where_no_network_is_wanted() -> None:
    strict, open_ = spec(profile()).landlock, spec(profile(egress=EgressEnforcementMode.NONE)).landlock
    assert strict is not None and strict.connect_tcp == () and strict.bind_tcp == ()
    assert open_ is not None and open_.connect_tcp is None and open_.bind_tcp is None


def test_limits_become_resource_limits() -> None:
    limits = SandboxLimits(cpu_seconds=7, memory_bytes=8 << 20, pids=9, open_files=65, file_bytes=1 << 20)
    found = {limit.name: limit for limit in spec(profile(limits=limits)).rlimits}
    assert (found["CPU"].soft, found["AS"].hard, found["NPROC"].hard) == (7, 8 << 20, 109)
    assert (found["NOFILE"].hard, found["FSIZE"].hard, found["CORE"].hard) == (65, 1 << 20, 1)
    counted = {limit.name for limit in spec(profile(limits=limits), memory_by_cgroup=True).rlimits}
    assert "AS" not in counted


def test_the_environment_is_made_and_never_inherited() -> None:
    made = dict(environment_of_tier_b(profile(env=(("LANG", "de"), ("X", "1")), tool_roots=("/opt/t",)), "/scratch/1"))
    assert made["HOME"] == made["TMPDIR"] == "/scratch/1" and made["LANG"] == "de" and made["X"] == "1"
    assert made["PATH"].startswith("/opt/t/bin:")
    assert set(made) == {"HOME", "LANG", "PATH", "TERM", "TMPDIR", "X"}


def test_the_receipt_says_what_was_got() -> None:
    wanted = profile()
    made = spec(wanted)
    good = receipt_of_tier_b(wanted, made, 7)
    # UDP is beyond Landlock: what strict promises, only a network namespace holds.
    assert [line.layer for line in good.lines if not line.held] == [Layer.EGRESS]
    open_ = receipt_of_tier_b(profile(egress=EgressEnforcementMode.PREFLIGHT), made, 7)
    assert [line.layer for line in open_.lines if not line.held] == []
    poor = spec(wanted, seccomp=None, landlock=False)
    missing = {line.layer for line in receipt_of_tier_b(wanted, poor, 0).lines if not line.held}
    assert missing == {Layer.SECCOMP, Layer.LANDLOCK, Layer.WORKSPACE, Layer.EGRESS}
