"""The messages between the daemon, the zygote, a supervisor and the process that becomes the program.

Standard library only: the zygote loads it. All ends are one release of Palyra, started from each other, so they
negotiate nothing. Every message is a struct of fixed size: the daemon never parses rich data from a process closer to
the program than itself. The order itself is the encoded plan of ``start_plan``.
"""

import struct

VERSION = 2

# A packet must fit the smallest usual socket buffer. A longer order travels as a memory file.
INLINE_ORDER_BYTES = 60_000

# The process that becomes the program -> daemon, when a call of the plan failed: its index and the errno.
FAILED = struct.Struct("<qq")
# Instead of an index: the process could not be created in its group.
NOT_IN_GROUP = -1

# Supervisor -> daemon.
# Tag, version, whether the native executor waits, pid of the process that will be the program. With pid 0 a second
# greeting follows once the process was created, after START.
HELLO = struct.Struct("<cBBi")
HELLO_TAG = b"H"
DONE = struct.Struct("<8s3q")  # tag, wait status, orphans, survivors
DONE_TAG = b"D"

# Daemon -> supervisor.
KILL_TAG = b"K"
GROUPS_TAG = b"G"  # the directories of the groups that end with the program
START_TAG = b"B"  # the version 2 group to create the process in that becomes the program, or nothing

# Daemon <-> zygote.
WANT = struct.Struct("<cH")  # tag, how many supervisors
WANT_TAG = b"N"
MADE = struct.Struct("<ci")  # tag, pid of the supervisor; its two sockets come along
MADE_TAG = b"M"
SWEPT = struct.Struct("<ci")  # tag, pid of a supervisor that was killed; none of its descendants is left
SWEPT_TAG = b"W"
REFUSED = struct.Struct("<ci")  # tag, errno: no supervisor could be made
REFUSED_TAG = b"E"
