from pathlib import Path

from palyra.sandbox.domain.process_run import ProcessCommand
from palyra.sandbox.domain.profile import EgressEnforcementMode, SandboxProfile, SandboxTier
from palyra.sandbox.guards.checks import build_guard_host, check_before_spawn
from palyra.sandbox.launch.launcher import Launcher
from palyra.sandbox.launch.prewarm import BuiltAhead, filter_of, program_inside
from palyra.sandbox.layers.cgroup import CgroupPool
from palyra.sandbox.layers.seccomp import build_tier_b_filter, build_tier_c_filter
from palyra.sandbox.network.call_network import NamespaceSockets


def test_a_shared_network_has_the_filter_that_keeps_its_sockets_apart() -> None:
    strict = SandboxProfile(workspace_root="/srv/space")
    shared = SandboxProfile(workspace_root="/srv/space", egress=EgressEnforcementMode.PREFLIGHT)
    assert filter_of(strict) == build_tier_c_filter("x86_64") != build_tier_b_filter("x86_64") == filter_of(shared)


def test_the_program_is_the_file_that_was_judged_with_the_words_that_were_given(tmp_path: Path) -> None:
    profile = SandboxProfile(workspace_root=str(tmp_path), env=(("A", "b"),))
    checked = check_before_spawn(profile, ProcessCommand(command="true", args=("x y", "")), build_guard_host(profile))
    program = program_inside(profile, checked)
    assert program.argv == (b"true", b"x y", b"") and program.program == b"/usr/bin/true"
    assert dict(program.env)[b"A"] == b"b" and dict(program.env)[b"PWD"] == program.cwd == str(tmp_path).encode()
    # All that is in force already, for the process that becomes it.
    assert (program.seccomp, program.rlimits, program.new_session, program.no_new_privs) == (None, (), False, False)


async def test_isolated_profiles_are_served_and_others_are_not() -> None:
    cgroups = CgroupPool(hierarchies=())
    launcher = Launcher(cgroups=cgroups)
    namespace_sockets = NamespaceSockets()
    ahead = BuiltAhead(launcher, cgroups, namespace_sockets, enabled=True)
    assert await ahead.serves()
    assert ahead.take(SandboxProfile(workspace_root="/srv/space", tier=SandboxTier.B)) is None
    assert ahead.waiting == ()
    await ahead.close()
    await launcher.close()
    await namespace_sockets.close()
