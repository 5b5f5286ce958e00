"""The messages between the daemon, the zygote, a keeper and a program about to start.

This module is loaded by the zygote, which starts fast because it imports nothing but the standard library. All ends
are one release of Palyra under one interpreter, started from each other, so there is nothing to negotiate; the version
is checked all the same. Orders go only from the daemon outwards. What comes back is fixed-size structs, so that the
daemon never runs a rich parser over bytes from a process closer to the program than itself.
"""

import marshal
import struct

VERSION = 1

# A packet must fit the smallest usual socket buffer. A longer order travels as a memory file.
INLINE_ORDER_BYTES = 60_000
# The kernel passes at most 253 descriptors in one message.
MAX_DESCRIPTORS = 253

ORDER_INLINE = b"I"
ORDER_IN_MEMORY_FILE = b"M"

# Program about to start -> daemon. End of file after RUNNING means that exec succeeded.
RUNNING = struct.Struct("<cBBBHHH")  # tag, nnp, capabilities dropped, seccomp, landlock abi, rlimits, cgroups
RUNNING_TAG = b"R"
FAILED = struct.Struct("<cBi64s")  # tag, index of the stage, errno, the end of the name that failed
FAILED_TAG = b"F"

# Keeper -> daemon.
HELLO = struct.Struct("<cBi")  # tag, version, pid of the process that will be the program
HELLO_TAG = b"H"
DONE = struct.Struct("<cidd7qii")  # tag, wait status, user and system seconds, counters, orphans, survivors
DONE_TAG = b"D"
RUSAGE_COUNTERS = ("maxrss_kib", "minor_faults", "major_faults", "blocks_in", "blocks_out", "switches", "preemptions")

# Daemon -> keeper.
KILL_TAG = b"K"
SIGNAL_TAG = b"S"
GROUPS_TAG = b"G"
SIGNAL = struct.Struct("<cB")

# Daemon <-> zygote.
WANT = struct.Struct("<cH")  # tag, how many keepers
WANT_TAG = b"N"
MADE = struct.Struct("<ci")  # tag, pid of the keeper; its two sockets come along
MADE_TAG = b"M"
SWEPT = struct.Struct("<ci")  # tag, pid of a keeper that was killed; none of its descendants is left
SWEPT_TAG = b"W"
REFUSED = struct.Struct("<ci")  # tag, errno: no keeper could be made
REFUSED_TAG = b"E"

Landlock = tuple[
    tuple[str, ...],
    tuple[str, ...],
    tuple[str, ...],
    tuple[int, ...] | None,
    tuple[int, ...] | None,
    bool,
    bool,
    int,
]
# version, executable, argv, env, cwd, rlimits, nnp, drop capabilities, seccomp, landlock, new session, umask,
# data descriptors, numbers of passed descriptors, cgroup.procs files
Order = tuple[
    int,
    bytes,
    tuple[bytes, ...],
    tuple[tuple[bytes, bytes], ...],
    bytes,
    tuple[tuple[int, int, int], ...],
    bool,
    bool,
    bytes | None,
    Landlock | None,
    bool,
    int,
    tuple[tuple[int, bytes], ...],
    tuple[int, ...],
    tuple[str, ...],
]


def encode_order(order: Order) -> bytes:
    return marshal.dumps(order)


def decode_order(raw: bytes) -> Order:
    order: Order = marshal.loads(raw)  # noqa: S302 - written by the daemon that started this process
    if order[0] != VERSION:
        raise ValueError(f"launch order of version {order[0]}, this is version {VERSION}")
    return order
