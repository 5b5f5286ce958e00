"""What it takes to start one program, as a value.

A ``LaunchSpec`` names everything the program will have: its arguments, its environment, its descriptors, its limits.
Whatever it does not name, the program does not get. The launcher carries it out and decides nothing.
"""

from enum import StrEnum
from typing import Final

import msgspec

from palyra.errors import Failed, InvalidInput, Unavailable
from palyra.sandbox.domain.profile import SandboxLimits

# Descriptors 0, 1 and 2 are handed over with every launch; others are placed from here on.
FIRST_EXTRA_DESCRIPTOR: Final = 3
# Targets are small fixed numbers (`bwrap --seccomp 10`); a high one only widens the table the kernel must copy.
LAST_EXTRA_DESCRIPTOR: Final = 63
# With the three standard ones and one for a long order they fit in one message to the process that waits for it.
MAX_EXTRA_DESCRIPTORS: Final = 60

# Where the root of a sandbox lies in the mount namespace from which bubblewrap is started.
MADE_ROOT: Final = b"/new"
# And where lies what goes beneath something new that bubblewrap mounts itself, and would be hidden by it.
BESIDE_ROOT: Final = b"/beside"

# Owner writes, everybody reads: what a program started from an ordinary shell sees.
ORDINARY_UMASK: Final = 0o022


class BadLaunch(InvalidInput):
    code = "sandbox.bad_launch"
    hint = "this is how the runner describes a program to the launcher; the caller of a tool does not write it"


class LaunchFailed(Failed):
    """The program never ran. ``stage`` and ``errno`` in the details say which step failed and why."""

    code = "sandbox.launch_failed"
    hint = "the details name the step that failed before the program could start and the system's reason"


class KeeperLost(Failed):
    """The process that watched over the program was killed, so how the program ended is not known."""

    code = "sandbox.keeper_lost"
    hint = "something outside the sandbox killed its keeper; the program and all its descendants were ended"


class LauncherGone(Unavailable):
    code = "sandbox.launcher_gone"
    hint = "the launcher process is not running; the next launch starts it again"


class LaunchStage(StrEnum):
    """The steps between taking the order and running the program, in the order they are done."""

    RECEIVE = "receive"
    DESCRIPTORS = "descriptors"
    CGROUP = "cgroup"
    SESSION = "session"
    MOUNTS = "mounts"
    WORKING_DIRECTORY = "working_directory"
    NO_NEW_PRIVS = "no_new_privs"
    LANDLOCK = "landlock"
    RLIMITS = "rlimits"
    CAPABILITIES = "capabilities"
    SECCOMP = "seccomp"
    EXEC = "exec"


class RLimit(msgspec.Struct, frozen=True):
    """One resource limit. ``name`` is the constant of resource(3) without its prefix: ``CPU``, ``AS``, ``NPROC``."""

    name: str
    soft: int
    hard: int


class LandlockRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the program may reach in the file system, on TCP, and among other processes.

    A path of ``read`` that does not exist is passed over, so that one list serves every distribution; a path of
    ``write`` must exist. ``connect_tcp`` and ``bind_tcp`` left at ``None`` do not restrict TCP; an empty tuple
    forbids it. Whatever the running kernel's ABI cannot restrict is left out and reported, unless ``least_abi`` says
    that less will not do.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    connect_tcp: tuple[int, ...] | None = None
    bind_tcp: tuple[int, ...] | None = None
    scope_signals: bool = True
    scope_abstract_sockets: bool = True
    least_abi: int = 1


class RootKind(StrEnum):
    """What one part of a made root is. The mounted ones are the host's own, at the same path and read-only."""

    DIRECTORY = "directory"
    LINK = "link"
    FILE = "file"
    MOUNTED_FILE = "mounted_file"
    MOUNTED_DIRECTORY = "mounted_directory"
    DEVICE = "device"
    # A new set of pseudo terminals.
    TERMINALS = "terminals"


class RootPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a root that is made for a program, and why it is there.

    ``content`` is a file's, or what a link says. With a ``descriptor`` the file's content is read from there instead,
    and ``size`` says how much of it there is.
    """

    path: bytes
    kind: RootKind
    reason: str
    content: bytes = b""
    descriptor: int | None = None
    size: int = 0
    beside: bool = False

    @property
    def place(self) -> bytes:
        """Where it lies in the namespace from which bubblewrap is started."""
        return (BESIDE_ROOT if self.beside else MADE_ROOT) + self.path


class ReadOnlyHost(msgspec.Struct, frozen=True, kw_only=True):
    """A mount namespace of the program's own that holds, of the whole host, only what is named here: ``parts`` in their
    order, ``workspace`` and /proc. Everything is read-only but /proc and, where ``writable``, the
    workspace. A sandbox's root lies ready in it at ``MADE_ROOT``, and the workspace in that, or in ``BESIDE_ROOT``.

    ``ids`` are the user and the group for a user namespace of its own, for who may not make a mount namespace without.
    ``mounted`` are paths in the workspace that become mounts, in this order, and whether each is read-only. They must
    exist: nothing is ever made there.
    """

    workspace: bytes
    beside: bool = False
    writable: bool = True
    parts: tuple[RootPart, ...] = ()
    mounted: tuple[tuple[bytes, bool], ...] = ()
    ids: tuple[int, int] | None = None

    @property
    def place(self) -> bytes:
        return BESIDE_ROOT if self.beside else MADE_ROOT


class CgroupEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The directories of the control groups that a program starts in, and that end with it.

    It enters those of version 1 by itself, and is created in the one of version 2.
    """

    v1: tuple[str, ...] = ()
    v2: str | None = None

    @property
    def directories(self) -> tuple[str, ...]:
        return self.v1 if self.v2 is None else (*self.v1, self.v2)


NO_CGROUP: Final = CgroupEntry()


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One program to start. ``executable`` is what the kernel runs; ``argv[0]`` is only what the program is told.

    There is no search through PATH. To run exactly the file that was checked, or to work in exactly the directory
    that was opened, hand over a descriptor and name it as ``/proc/self/fd/N``.
    """

    argv: tuple[bytes, ...]
    executable: bytes | None = None
    env: tuple[tuple[bytes, bytes], ...] = ()
    cwd: bytes = b"/"
    rlimits: tuple[RLimit, ...] = ()
    no_new_privs: bool = True
    drop_capabilities: bool = False
    seccomp: bytes | None = None
    landlock: LandlockRules | None = None
    new_session: bool = True
    umask: int = ORDINARY_UMASK
    data_fds: tuple[tuple[int, bytes], ...] = ()
    pass_fds: tuple[int, ...] = ()
    cgroup: CgroupEntry = NO_CGROUP
    read_only_host: ReadOnlyHost | None = None

    def __post_init__(self) -> None:
        if not self.argv:
            raise BadLaunch("a program needs at least its own name as an argument")
        if not self.program.startswith(b"/"):
            raise BadLaunch("the executable must be an absolute path", executable=repr(self.program))
        if not self.cwd.startswith(b"/"):
            raise BadLaunch("the working directory must be an absolute path", cwd=repr(self.cwd))
        texts = (*self.argv, self.program, self.cwd, *(part for pair in self.env for part in pair))
        if any(b"\0" in text for text in texts):
            raise BadLaunch("a NUL byte cannot be passed to a program")
        if any(not name or b"=" in name for name, _ in self.env):
            raise BadLaunch("an environment name is empty or contains '='")
        if len(self.data_fds) + len(self.pass_fds) > MAX_EXTRA_DESCRIPTORS:
            raise BadLaunch(f"at most {MAX_EXTRA_DESCRIPTORS} descriptors can be handed over")
        targets = [number for number, _ in self.data_fds] + list(self.pass_fds)
        if len(set(targets)) != len(targets):
            raise BadLaunch("two descriptors are placed at the same number", targets=targets)
        if any(not FIRST_EXTRA_DESCRIPTOR <= number <= LAST_EXTRA_DESCRIPTOR for number in targets):
            raise BadLaunch(
                f"descriptors are placed from {FIRST_EXTRA_DESCRIPTOR} to {LAST_EXTRA_DESCRIPTOR}", targets=targets
            )

    @property
    def program(self) -> bytes:
        return self.executable if self.executable is not None else self.argv[0]


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What was in force at the moment of exec, as the process itself reported it."""

    no_new_privs: bool
    capabilities_dropped: bool
    seccomp: bool
    landlock_abi: int
    rlimits: int
    cgroups: int


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How the program ended. Exactly one of ``exit_code`` and ``signal`` is set.

    ``rusage`` covers the program and the descendants it waited for. ``orphans_killed`` counts the descendants that
    outlived it and were ended; ``survivors`` those that could not be (they had changed to another user).
    """

    exit_code: int | None
    signal: int | None
    rusage: dict[str, float]
    orphans_killed: int = 0
    survivors: int = 0


# The resource limits of one call, as values.

# After the soft limit the program gets SIGXCPU and this long to end by itself.
CPU_GRACE_SECONDS: Final = 2
# Too small for any file, and the one value at which the kernel does not start the program that core_pattern may name:
# with 0 the memory of a crash would still be handed to it, outside and as root.
NO_CORE_BYTES: Final = 1


def ordinary_rlimits(
    *,
    cpu_seconds: int,
    memory_bytes: int | None,
    pids: int,
    open_files: int,
    file_bytes: int,
    tasks_of_user: int,
) -> tuple[RLimit, ...]:
    """The limits of one call. ``memory_bytes`` is ``None`` where a control group limits memory better.

    The pids limit is added to what the user already runs, since the kernel compares against the user's total. That
    total moves, so this is a bound on runaway forking and not an exact allowance.
    """
    both = [
        ("CORE", NO_CORE_BYTES),
        ("NOFILE", open_files),
        ("FSIZE", file_bytes),
        ("NPROC", tasks_of_user + pids),
    ]
    return (
        RLimit(name="CPU", soft=cpu_seconds, hard=cpu_seconds + CPU_GRACE_SECONDS),
        *(RLimit(name=name, soft=value, hard=value) for name, value in both),
        *(() if memory_bytes is None else memory_rlimits(memory_bytes)),
    )


def memory_rlimits(memory_bytes: int) -> tuple[RLimit, ...]:
    """One process's memory. All it has mapped counts: what it shares, and what it only reserves, as node's WebAssembly
    does (some 10 GiB for each memory, unless started with --disable-wasm-trap-handler). DATA alone would let shared
    memory grow without bound."""
    return (RLimit("AS", memory_bytes, memory_bytes),)


def rlimits_of(wanted: SandboxLimits, *, memory_is_counted: bool) -> tuple[RLimit, ...]:
    """Return limits that bubblewrap itself can live with.

    Programs reserve far more memory than they use. So the address space of each process is limited only where no
    cgroup counts real memory. The number of processes is not among them: counted for the user outside, it would fail
    where that user is busy. ``readback.Waiting.limit_processes`` sets it on the waiting sandbox, where the kernel
    counts the sandbox's own.
    """
    memory = () if memory_is_counted else memory_rlimits(wanted.memory_bytes)
    return (
        RLimit("CPU", wanted.cpu_seconds, wanted.cpu_seconds + 1),
        *memory,
        RLimit("NOFILE", wanted.open_files, wanted.open_files),
        RLimit("FSIZE", wanted.file_bytes, wanted.file_bytes),
        RLimit("CORE", NO_CORE_BYTES, NO_CORE_BYTES),
    )
