"""From an order to a running program, in the process that becomes it. Standard library only: the zygote loads it.

The steps are in the order of ``LaunchStage``: descriptors before the working directory, because that may be named by
a descriptor; limits late, so that they bind the program and not its preparation; the filter last, because it forbids
what earlier steps need. Any failure is reported with its stage, and the process ends without having run anything.
"""

import array
import fcntl
import os
import resource
import socket
from typing import NoReturn

from palyra.sandbox import landlock, launch_wire, linux_calls

# Indexes into LaunchStage; a test compares the two.
STAGES = (
    "receive",
    "cgroup",
    "descriptors",
    "session",
    "working_directory",
    "no_new_privs",
    "landlock",
    "rlimits",
    "capabilities",
    "seccomp",
    "exec",
)
(
    _RECEIVE,
    _CGROUP,
    _DESCRIPTORS,
    _SESSION,
    _WORKING_DIRECTORY,
    _NO_NEW_PRIVS,
    _LANDLOCK,
    _RLIMITS,
    _CAPABILITIES,
    _SECCOMP,
    _EXEC,
) = range(len(STAGES))

NOT_STARTED = 127
# Received descriptors are moved above every number a spec may name before they are placed.
_ABOVE_TARGETS = 200
_ANCILLARY_BYTES = socket.CMSG_SPACE(launch_wire.MAX_DESCRIPTORS * 4)


def receive_order(orders: socket.socket) -> tuple[launch_wire.Order, list[int]] | None:
    """Waits for the one order. ``None`` when the daemon closed the socket instead."""
    raw, ancillary, flags, _ = orders.recvmsg(
        launch_wire.INLINE_ORDER_BYTES + 1, _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
    )
    if not raw:
        return None
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        raise ValueError("the order was cut short")
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content)
    received = descriptors.tolist()
    if raw[:1] == launch_wire.ORDER_IN_MEMORY_FILE:
        with open(received.pop(0), "rb", buffering=0) as content_file:
            content_file.seek(0)
            raw = b"." + content_file.read()
    return launch_wire.decode_order(raw[1:]), received


def become(orders: socket.socket) -> NoReturn:
    """Takes an order and becomes its program."""
    stage = _RECEIVE
    # Away from every number that a descriptor of the program may be placed at.
    reports = _moved_up(orders.fileno())
    try:
        taken = receive_order(orders)
        if taken is None:
            os._exit(0)
        order, received = taken
        (
            _version,
            executable,
            argv,
            env,
            cwd,
            rlimits,
            no_new_privs,
            drop_capabilities,
            seccomp,
            landlock_rules,
            new_session,
            umask,
            data,
            targets,
            cgroups,
        ) = order
        stage = _CGROUP
        for path in cgroups:
            _enter_cgroup(path)
        stage = _DESCRIPTORS
        orders.close()
        _place_descriptors(received, data, targets)
        stage = _SESSION
        if new_session:
            os.setsid()
        os.umask(umask)
        stage = _WORKING_DIRECTORY
        os.chdir(cwd)
        stage = _NO_NEW_PRIVS
        if no_new_privs:
            linux_calls.prctl(linux_calls.PR_SET_NO_NEW_PRIVS, 1)
        stage = _LANDLOCK
        abi = landlock.restrict_self(landlock_rules) if landlock_rules is not None else 0
        stage = _RLIMITS
        for number, soft, hard in rlimits:
            resource.setrlimit(number, (soft, hard))
        stage = _CAPABILITIES
        if drop_capabilities:
            linux_calls.drop_capabilities()
        stage = _SECCOMP
        if seccomp is not None:
            linux_calls.install_seccomp(seccomp)
        stage = _EXEC
        os.write(
            reports,
            launch_wire.RUNNING.pack(
                launch_wire.RUNNING_TAG,
                no_new_privs,
                drop_capabilities,
                seccomp is not None,
                abi,
                len(rlimits),
                len(cgroups),
            ),
        )
        os.execve(executable, argv, dict(env))  # noqa: S606 - starting a program is what this module is for
    except BaseException as problem:
        _report(reports, stage, problem)
    os._exit(NOT_STARTED)


def _enter_cgroup(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, b"0")
    finally:
        os.close(descriptor)


def _place_descriptors(
    received: list[int], data: tuple[tuple[int, bytes], ...], targets: tuple[int, ...]
) -> None:
    """Puts every descriptor at its number and marks all others to be closed by exec."""
    if len(received) != len(targets) + 3:
        raise ValueError(f"{len(received)} descriptors came along, {len(targets) + 3} were announced")
    if data or targets:
        received = [_moved_up(number) for number in received]
    linux_calls.close_on_exec_from(3)
    for number, target in zip(received, (0, 1, 2, *targets), strict=True):
        os.dup2(number, target, inheritable=True)
    for target, content in data:
        _place_data(target, content)


def _moved_up(number: int) -> int:
    return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _ABOVE_TARGETS)


def _place_data(target: int, content: bytes) -> None:
    memory_file = os.memfd_create("palyra", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(memory_file, "wb", buffering=0, closefd=False) as writer:
        view = memoryview(content)
        while view:
            view = view[writer.write(view) :]
    os.lseek(memory_file, 0, os.SEEK_SET)
    fcntl.fcntl(
        memory_file,
        fcntl.F_ADD_SEALS,
        fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL,
    )
    moved = _moved_up(memory_file)
    os.close(memory_file)
    os.dup2(moved, target, inheritable=True)


def _report(reports: int, stage: int, problem: BaseException) -> None:
    number = problem.errno if isinstance(problem, OSError) and problem.errno else 0
    name = getattr(problem, "filename", None)
    subject = os.fsencode(name) if isinstance(name, str | bytes) else (b"" if number else str(problem).encode())
    message = launch_wire.FAILED.pack(launch_wire.FAILED_TAG, stage, number, subject[-64:])
    try:
        os.write(reports, message)
    except OSError:  # nobody is left to tell; the exit status remains
        return
