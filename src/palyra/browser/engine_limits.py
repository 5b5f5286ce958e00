"""Every bound of the engine: what Chromium may take of the machine, and how long it is waited for."""

from typing import Final

import msgspec

KIB: Final = 1024
MIB: Final = 1024 * KIB

# The wire. A tree of 10,000 elements is 13 MB, a screenshot of a long page as much again.
MAX_FRAME_BYTES: Final = 64 * MIB
MAX_COMMAND_BYTES: Final = 16 * MIB
MAX_UNSENT_BYTES: Final = 32 * MIB
MAX_WAITING_COMMANDS: Final = 1024
COMMAND_SECONDS: Final = 15.0
READ_BYTES: Final = 256 * KIB
# After so many reads others get their turn.
READS_PER_TURN: Final = 8
PIPE_BYTES: Final = MIB

# The process.
START_SECONDS: Final = 30.0
GRACEFUL_SECONDS: Final = 5.0
END_SECONDS: Final = 5.0
# Between looks at a process that says it is up: nothing announces the start of its helpers.
LOOK_AGAIN_SECONDS: Final = 0.02
SAID_BYTES: Final = 4 * KIB
MAX_INFO_BYTES: Final = 4 * KIB
MAX_NOTE_BYTES: Final = KIB
MAX_NOTES: Final = 4096

# Ready processes: each costs about 60 MB.
READY_PROCESSES: Final = 2
MAX_READY_PROCESSES: Final = 4
# After one was taken, before the next is started: about what a session needs to its first page.
REFILL_SECONDS: Final = 0.25
# After trouble with starting one, before the next try.
RETRY_SECONDS: Final = 1.0

# Where root runs Chromium: an account that nobody has, in the range that distributions leave alone.
BROWSER_UID: Final = 60_700
GUARD_PORT: Final = 1080


class FolderSizes(msgspec.Struct, frozen=True, kw_only=True):
    """The most bytes in each folder that Chromium can write. All are in memory and end with the process."""

    profile: int = 256 * MIB
    downloads: int = 40 * MIB
    uploads: int = 32 * MIB
    cache: int = 64 * MIB
    shared_memory: int = 256 * MIB
    temporary: int = 32 * MIB
