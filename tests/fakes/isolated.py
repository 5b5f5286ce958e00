"""Runs a planned sandbox with real bubblewrap, without the launcher: for tests of the plan itself."""

import contextlib
import ctypes
import fcntl
import os
import platform
import resource
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from palyra.sandbox.domain.facts import Facts
from palyra.sandbox.domain.launch_spec import LaunchStage, ReadOnlyHost
from palyra.sandbox.domain.plan import BubblewrapPlan, plan_isolated
from palyra.sandbox.domain.profile import Receipt, SandboxProfile
from palyra.sandbox.launch.gated_sandbox import Gate, GatedReadback, release_checked
from palyra.sandbox.launch.plan_segment import DESCRIPTORS, RESTART, Segment, hold_read_only
from palyra.sandbox.launch.supervisor import exec_child
from palyra.sandbox.layers.bubblewrap import gather_host, to_launch_spec
from palyra.sandbox.layers.protected_mounts import gather_workspace
from palyra.sandbox.layers.syscall_table import SYSCALLS
from palyra.sandbox.verify.readback import NotBuilt

# Allows everything: these tests are about what holds without the filter. SECCOMP_RET_ALLOW.
ALLOW_ALL = struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000)
PATTERNS = (".git/hooks", ".git/config", ".env*", ".vscode", ".github/workflows")


class Ran(NamedTuple):
    code: int
    out: str
    err: str
    receipt: Receipt


def profile_of(workspace: Path, **changes: Any) -> SandboxProfile:
    changes.setdefault("protected_names", PATTERNS)
    return SandboxProfile(workspace_root=str(workspace), **changes)


def planned(
    profile: SandboxProfile, argv: Sequence[str], *, cwd: str | None = None, seccomp: bytes = ALLOW_ALL
) -> BubblewrapPlan:
    workspace, _ = gather_workspace(profile)
    facts = Facts(host=gather_host(), workspace=workspace, seccomp=seccomp)
    return plan_isolated(profile, tuple(map(os.fsencode, argv)), facts, cwd=cwd)


def wait_for_description(gate: Gate, seconds: float = 10.0) -> dict[str, Any]:
    """Return bubblewrap's description of the sandbox, without an event loop."""
    text, info = b"", None
    while info is None:
        if not select.select([gate.info], [], [], seconds)[0]:
            raise NotBuilt("bubblewrap is silent")
        text, info = gate.read_more(text)
    return info


def start(plan: BubblewrapPlan, gate: Gate, *, pass_through: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    spec = to_launch_spec(plan)
    sources: dict[int, int] = {}
    opened: list[int] = []
    for number, content in spec.data_fds:
        memory = os.memfd_create("data", os.MFD_CLOEXEC)
        os.write(memory, content)
        os.lseek(memory, 0, os.SEEK_SET)
        opened.append(memory)
        sources[number] = memory
    sources.update(zip(spec.pass_fds, gate.child_descriptors, strict=True))

    def place() -> None:
        lifted = {number: _lift(source) for number, source in sources.items()}
        for number, source in lifted.items():
            os.dup2(source, number, inheritable=True)
        # As the launcher's keeper does: bubblewrap itself would hand on whatever it inherits.
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) not in lifted:
                with contextlib.suppress(OSError):
                    os.set_inheritable(int(name), False)
        if spec.read_only_host is not None:
            carry_out(spec.read_only_host)
        for limit in spec.rlimits:
            resource.setrlimit(getattr(resource, f"RLIMIT_{limit.name}"), (limit.soft, limit.hard))

    process = subprocess.Popen(
        spec.argv,
        env={},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        close_fds=False,
        preexec_fn=place,
        start_new_session=True,
    )
    gate.hand_over()
    for each in opened:
        os.close(each)
    return process


def carry_out(host: ReadOnlyHost) -> None:
    """Holds the host read-only as the waiting process does, in a process that is about to become bubblewrap."""
    machine = platform.machine()
    plan = Segment(SYSCALLS[machine])
    free = [os.open("/", os.O_PATH | os.O_CLOEXEC) for _ in range(DESCRIPTORS)]
    for number in free:
        os.close(number)
    hold_read_only(plan, host, tuple(free))
    plan.add(LaunchStage.MOUNTS, "getpid")
    plan.words[-1] = RESTART
    encoded = plan.encode()
    buffer = ctypes.create_string_buffer(encoded, len(encoded))
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    failed = exec_child._make_calls(syscall, buffer, ctypes.addressof(buffer))
    if failed is not None:
        raise OSError(ctypes.get_errno(), f"{plan.steps[failed]}: {os.strerror(ctypes.get_errno())}")


def _lift(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 100)


def run(
    profile: SandboxProfile,
    argv: Sequence[str],
    *,
    cwd: str | None = None,
    meanwhile: Callable[[int], None] | None = None,
) -> Ran:
    return run_plan(planned(profile, argv, cwd=cwd), meanwhile)


def run_plan(plan: BubblewrapPlan, meanwhile: Callable[[int], None] | None = None) -> Ran:
    sandbox = 0
    with Gate() as gate:
        process = start(plan, gate)
        try:
            info = wait_for_description(gate)
            sandbox = int(info["child-pid"])
            with GatedReadback(info) as waiting:
                if meanwhile is not None:
                    meanwhile(waiting.pid)
                receipt = release_checked(plan, gate, waiting)
            out, err = process.communicate(timeout=60)
        except BaseException as error:
            # Until it is released the sandbox is not yet bound to bubblewrap's life; the launcher's keeper ends both.
            if sandbox:
                os.kill(sandbox, signal.SIGKILL)
            process.kill()
            out, err = process.communicate()
            if isinstance(error, NotBuilt):
                raise AssertionError(f"{error}: {err.decode(errors='replace')}") from error
            raise
    return Ran(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"), receipt)


def shell(profile: SandboxProfile, script: str, **options: Any) -> Ran:
    return run(profile, ["/bin/sh", "-c", script], **options)


if __name__ == "__main__":
    ran = shell(profile_of(Path(sys.argv[1])), sys.argv[2])
    print(ran.out, ran.err, ran.code)
    for line in ran.receipt.as_dicts():
        print(msgspec.json.encode(line).decode())
