"""The launch of one program, as a value.

A ``LaunchSpec`` names everything that the program will have: its arguments, its environment, its descriptors, its
limits. The program gets nothing else. The launcher carries it out and decides nothing.
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

# The place of a sandbox's root in the mount namespace from which bubblewrap is started.
MADE_ROOT: Final = b"/new"
# The place of parts that a new mount of bubblewrap's own would hide.
BESIDE_ROOT: Final = b"/beside"

# Owner writes, everybody reads: the same as in an ordinary shell.
ORDINARY_UMASK: Final = 0o022


class BadLaunch(InvalidInput):
    code = "sandbox.bad_launch"
    hint = "this is how the runner describes a program to the launcher; the caller of a tool does not write it"


class LaunchFailed(Failed):
    """The program never ran. ``stage`` and ``errno`` in the details say which step failed and why."""

    code = "sandbox.launch_failed"
    hint = "the details name the step that failed before the program could start and the system's reason"


class SupervisorLost(Failed):
    """The supervisor of the program was killed, so the end of the program is not known."""

    code = "sandbox.keeper_lost"
    hint = "something outside the sandbox killed its supervisor; the program and all its descendants were ended"


class LauncherGone(Unavailable):
    code = "sandbox.launcher_gone"
    hint = "the launcher process is not running; the next launch starts it again"


class LaunchStage(StrEnum):
    """The steps between taking the order and running the program, in their order."""

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
    """The program's reach in the file system, on TCP, and among other processes.

    A path of ``read`` that does not exist is skipped, so that one list serves every distribution; a path of ``write``
    must exist. ``connect_tcp`` and ``bind_tcp`` left at ``None`` do not restrict TCP; an empty tuple forbids it. Rules
    that the running kernel's ABI cannot restrict are omitted and reported. Below ``least_abi`` the launch fails.
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
    """The kind of one part of a made root. The mounted ones are the host's own, at the same path and read-only."""

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

    ``content`` is that of a file, or the target of a link. With a ``descriptor`` the file's content is read from
    there, ``size`` bytes of it.
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
        """Return its place in the namespace from which bubblewrap is started."""
        return (BESIDE_ROOT if self.beside else MADE_ROOT) + self.path


class ReadOnlyHost(msgspec.Struct, frozen=True, kw_only=True):
    """A mount namespace of the program's own that holds only these parts of the host.

    They are ``parts`` in their order, ``workspace`` and /proc. Everything is read-only but /proc and, where
    ``writable``, the workspace. A sandbox's root lies ready in it at ``MADE_ROOT``, and the workspace in that, or in
    ``BESIDE_ROOT``. ``ids`` are the user and the group for a user namespace of its own: an ordinary user may not make
    a mount namespace without one. ``mounted`` are paths in the workspace that become mounts, in this order, and
    whether each is read-only. They must exist: nothing is ever created there.
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
    """The control groups of a program: it enters those of version 1 itself, and is created in that of version 2."""

    v1: tuple[str, ...] = ()
    v2: str | None = None

    @property
    def directories(self) -> tuple[str, ...]:
        return self.v1 if self.v2 is None else (*self.v1, self.v2)


NO_CGROUP: Final = CgroupEntry()


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One program to start. The kernel runs ``executable``; ``argv[0]`` is only a word for the program.

    There is no search through PATH. To run exactly the checked file, or to work in exactly the opened directory, hand
    over a descriptor and name it as ``/proc/self/fd/N``.
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


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the program. Exactly one of ``exit_code`` and ``signal`` is set.

    ``orphans_killed`` counts the descendants that outlived it and were killed; ``survivors`` those that had changed to
    another user and could not be.
    """

    exit_code: int | None
    signal: int | None
    orphans_killed: int = 0
    survivors: int = 0


# After the soft limit the program gets SIGXCPU and this long to end by itself.
CPU_GRACE_SECONDS: Final = 2
# Too small for any file, and the one value at which the kernel does not start the program that core_pattern may name.
# With 0 that program would still get the memory of a crash, outside and as root.
NO_CORE_BYTES: Final = 1


def build_tier_b_rlimits(
    *,
    cpu_seconds: int,
    memory_bytes: int | None,
    pids: int,
    open_files: int,
    file_bytes: int,
    tasks_of_user: int,
) -> tuple[RLimit, ...]:
    """Return the limits of one call. ``memory_bytes`` is ``None`` where a control group limits memory better.

    The kernel compares the pids limit with the user's total, so it is added to what the user already runs. That total
    moves: this bounds runaway forking and is not an exact allowance.
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
        *(() if memory_bytes is None else limit_memory(memory_bytes)),
    )


def limit_memory(memory_bytes: int) -> tuple[RLimit, ...]:
    """Limit one process's address space: DATA alone would let shared memory grow without bound.

    Reserved memory counts too. node's WebAssembly reserves some 10 GiB for each memory, unless started with
    --disable-wasm-trap-handler.
    """
    return (RLimit("AS", memory_bytes, memory_bytes),)


def build_tier_c_rlimits(wanted: SandboxLimits, *, memory_is_counted: bool) -> tuple[RLimit, ...]:
    """Return limits that bubblewrap itself can live with.

    Programs reserve far more memory than they use. So the address space of each process is limited only where no
    cgroup counts real memory. The number of processes is not among them: counted for the user outside, it would fail
    where that user is busy. ``Readback.limit_processes`` sets it on the waiting sandbox, where the kernel
    counts the sandbox's own.
    """
    memory = () if memory_is_counted else limit_memory(wanted.memory_bytes)
    return (
        RLimit("CPU", wanted.cpu_seconds, wanted.cpu_seconds + 1),
        *memory,
        RLimit("NOFILE", wanted.open_files, wanted.open_files),
        RLimit("FSIZE", wanted.file_bytes, wanted.file_bytes),
        RLimit("CORE", NO_CORE_BYTES, NO_CORE_BYTES),
    )
