"""Every attempt of `palyra doctor --attack`, through the real sandbox, as root and as an ordinary user.

The controls make attempts without a sandbox, or with a weakened one, and expect to see them succeed: an attack that
cannot succeed anywhere shows nothing where it fails. Run as a program (``test_sandbox_attacks.py DIR``) it makes all of
them as an ordinary user.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from fakes.plain_sandbox import PlainSandbox
from palyra.doctor.attacks.catalogue import attempts_in
from palyra.doctor.attacks.runner import attack
from palyra.doctor.attacks.verdict import AttackReport, Escaped, Result, Verdict
from palyra.sandbox.domain.process_run import ProcessCommand, ProcessOutcome
from palyra.sandbox.domain.profile import EgressEnforcementMode, SandboxProfile, SandboxTier
from palyra.sandbox.runner import ProcessRunner, RunnerSettings
from palyra.sandbox.running_process import Sink

pytestmark = pytest.mark.promise("P-sandbox-holds")

NOBODY = 65534
SYSTEM_PYTHON = "/usr/bin/python3"
LEAST_ATTEMPTS = 40
# What a quiet machine needs is a fraction of it.
ALL_SECONDS = 110


def test_every_attempt_as_this_user(tmp_path: Path) -> None:
    assert_nothing_escaped(asyncio.run(attack(base=str(tmp_path))))


def test_every_attempt_as_an_ordinary_user() -> None:
    """The interpreter of the tests may be out of that user's reach; the system's own of the same version is not."""
    base = Path(tempfile.mkdtemp(prefix="palyra-"))
    root = os.geteuid() == 0
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "HOME": str(base)}
    switch = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if root else []
    try:
        if root:
            os.chown(base, NOBODY, NOBODY)
        python = SYSTEM_PYTHON if root else sys.executable
        done = subprocess.run(
            [*switch, python, __file__, str(base)], capture_output=True, text=True, env=environment, timeout=ALL_SECONDS
        )
        assert (done.returncode, done.stdout[-8:]) == (0, "blocked\n"), done.stdout + done.stderr
    finally:
        shutil.rmtree(base)


def assert_nothing_escaped(report: AttackReport) -> None:
    report.raise_if_escaped()
    for tier in SandboxTier:
        made = {each.id for each in report.attempted if each.tier is tier}
        assert len(made) >= LEAST_ATTEMPTS
        # An attempt that is not made proves nothing: only what the machine lacks may be missing.
        missing = {attempt.id for attempt in attempts_in(tier)} - made
        assert missing <= {"files.file_handle", "network.tcp6", "kernel.setuid_program"}, evidence_of(report, missing)
    stopped = {each.id for each in report.verdicts if each.tier is SandboxTier.C and each.result is Result.BLOCKED}
    assert len(stopped) >= 2 * LEAST_ATTEMPTS
    assert all(
        each.layer and each.evidence for each in report.verdicts if each.result is Result.BLOCKED and each.promised
    )


def evidence_of(report: AttackReport, ids: set[str]) -> list[str]:
    return [f"{each.id}: {each.evidence}" for each in report.verdicts if each.id in ids]


# Harmless without any sandbox: they touch nothing but bait.
CONTROLS = {
    "files.read_absolute": "the secret came out",
    "files.read_symlink": "the secret came out",
    "files.read_process_root": "the secret came out",
    "files.inherited_descriptor": "the secret came out",
    "files.write_absolute": "outside/marker was changed",
    "files.create_outside": "outside/new appeared",
    "files.rename_out": "outside/moved appeared",
    "files.unlink_outside": "outside/marker is gone",
    "files.git_config": "protected .git/config changed",
    "files.new_git_hook": "protected .git/hooks/post-checkout changed",
    "files.rename_git": "protected .git/config changed",
    "files.planted_git_config": "outside/ran appeared",
    "files.planted_git_include": "outside/ran appeared",
    "files.planted_git_commondir": "outside/ran appeared",
    "files.planted_git_submodule": "outside/ran appeared",
    "files.planted_git_worktree": "outside/ran appeared",
    "files.planted_git_bare": "outside/ran appeared",
    "files.planted_editor_tasks": "outside/ran appeared",
    "files.planted_shell_environment": "outside/ran appeared",
    "files.planted_agent_hooks": "outside/ran appeared",
    "files.setuid_chmod": "a file with mode 4755 was left",
    "files.setuid_setgid": "a file with mode 2755 was left",
    "files.setuid_openat2": "a file with mode 4755 was left",
    "kernel.x32_entry": "",
    "kernel.ptrace_child": "attached to a child",
    "kernel.network_settings": "",
    "processes.signal": "the host's process was ended",
    "processes.vm_readv": "the secret came out",
    "processes.prlimit": "the limits of the host's process were changed",
    "processes.environ": "the secret came out",
    "processes.shared_memory": "the secret came out",
    "network.tcp": "the host's listener on 127.0.0.1 got a connection",
    "network.fastopen": "the host's listener on 127.0.0.1 got a connection",
    "network.udp": "the host's UDP socket got a datagram",
    "network.abstract_socket": "the host's abstract socket got a connection",
    "network.path_socket": "the unix socket outside got a connection",
    "resources.descriptors": "256 descriptors",
    "resources.sparse_file": "a file of 16 MiB",
    "resources.setsid": "outlived the call (state S)",
    "resources.double_fork": "outlived the call (state S)",
    "resources.stopped": "outlived the call (state T)",
    "guards.environment_leak": "the secret came out",
    "guards.shell_symlink": "the secret came out",
    "guards.shell_copy": "the secret came out",
}
# What this kernel or this user may not be able to do even without a sandbox.
MAY_FAIL = {"kernel.x32_entry", "kernel.network_settings", "files.setuid_openat2"}


async def test_without_a_sandbox_the_attempts_succeed(tmp_path: Path) -> None:
    report = await attack(
        (SandboxTier.C,), choose=lambda each: each.id in CONTROLS, sandbox=lambda _: PlainSandbox(), base=str(tmp_path)
    )
    seen = {each.id: each for each in report.verdicts}
    assert seen.keys() == CONTROLS.keys()
    for name, evidence in CONTROLS.items():
        verdict = seen[name]
        if name in MAY_FAIL and verdict.result is not Result.NOT_BLOCKED:
            continue
        assert (verdict.result, verdict.promised) == (Result.NOT_BLOCKED, True), verdict
        assert evidence in verdict.evidence, verdict
    with pytest.raises(Escaped) as escaped:
        report.raise_if_escaped()
    assert "files.read_absolute (tier c)" in escaped.value.message
    assert escaped.value.exit_code == 1


class Weakened:
    """The real runner with one line of the profile changed."""

    def __init__(self, scratch: str, **changes: object) -> None:
        self._runner = ProcessRunner(RunnerSettings(scratch=scratch))
        self._changes = changes

    async def run_constrained_process(
        self, profile: SandboxProfile, command: ProcessCommand, *, sink: Sink | None = None
    ) -> ProcessOutcome:
        weaker = msgspec.structs.replace(profile, **self._changes)
        return await self._runner.run_constrained_process(weaker, command, sink=sink)

    async def close(self) -> None:
        await self._runner.close()


async def weakened(tmp_path: Path, name: str, **changes: object) -> Verdict:
    report = await attack(
        (SandboxTier.C,),
        choose=lambda each: each.id == name,
        sandbox=lambda scratch: Weakened(scratch, **changes),
        base=str(tmp_path),
    )
    (verdict,) = report.verdicts
    return verdict


async def test_a_profile_without_protected_names_is_found_out(tmp_path: Path) -> None:
    verdict = await weakened(tmp_path, "files.git_config", protected_names=())
    assert (verdict.result, verdict.evidence) == (Result.NOT_BLOCKED, "protected .git/config changed")


async def test_a_profile_that_shares_the_network_is_found_out(tmp_path: Path) -> None:
    verdict = await weakened(tmp_path, "network.tcp", egress=EgressEnforcementMode.NONE)
    assert (verdict.result, verdict.evidence) == (
        Result.NOT_BLOCKED,
        "the host's listener on 127.0.0.1 got a connection",
    )


async def test_a_profile_with_wide_limits_is_found_out(tmp_path: Path) -> None:
    wide = SandboxProfile(workspace_root="/x").limits
    verdict = await weakened(tmp_path, "resources.descriptors", limits=wide)
    assert (verdict.result, verdict.evidence) == (Result.NOT_BLOCKED, "256 descriptors")


async def test_a_profile_that_allows_interpreters_is_found_out(tmp_path: Path) -> None:
    verdict = await weakened(tmp_path, "guards.shell", allow_interpreters=True)
    assert (verdict.result, verdict.evidence) == (Result.NOT_BLOCKED, "the secret came out")


async def test_a_directory_shown_as_a_tool_is_found_out(tmp_path: Path) -> None:
    """The whole of the harness's base is mounted read-only: then the secret can be read."""
    verdict = await weakened(tmp_path, "files.read_absolute", tool_roots=(str(tmp_path),))
    assert (verdict.result, verdict.evidence) == (Result.NOT_BLOCKED, "the secret came out")


async def test_nothing_is_left_behind(tmp_path: Path) -> None:
    before = dict(os.environ)
    await attack((SandboxTier.B,), choose=lambda each: each.id == "files.read_absolute", base=str(tmp_path))
    assert os.listdir(tmp_path) == []
    assert dict(os.environ) == before


if __name__ == "__main__":
    made = asyncio.run(attack(base=sys.argv[1]))
    assert made.user != 0
    assert_nothing_escaped(made)
    print("blocked")
