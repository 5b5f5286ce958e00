"""Every bound of the browser: the engine, the pages, and the requests to its daemon."""

from typing import Final

import msgspec

from palyra.limits import KIB, MIB

# The wire. A tree of 10,000 elements is 13 MB, a screenshot of a long page as much again.
MAX_FRAME_BYTES: Final = 64 * MIB
MAX_COMMAND_BYTES: Final = 16 * MIB
MAX_UNSENT_BYTES: Final = 32 * MIB
MAX_WAITING_COMMANDS: Final = 1024
COMMAND_SECONDS: Final = 15.0
READ_BYTES: Final = 256 * KIB
# After this many reads other tasks get their turn.
READS_PER_TURN: Final = 8
PIPE_BYTES: Final = MIB

# The process.
START_SECONDS: Final = 30.0
GRACEFUL_SECONDS: Final = 5.0
END_SECONDS: Final = 5.0
# Between inspections of a started process: nothing announces the start of its helpers.
LOOK_AGAIN_SECONDS: Final = 0.02
SAID_BYTES: Final = 4 * KIB
MAX_INFO_BYTES: Final = 4 * KIB
MAX_NOTE_BYTES: Final = KIB
MAX_NOTES: Final = 4096

# Ready processes: each costs about 60 MB.
READY_PROCESSES: Final = 2
MAX_READY_PROCESSES: Final = 4
# Between taking one and starting the next: about the time that a session needs to its first page.
REFILL_SECONDS: Final = 0.25
# Between a failed start and the next try.
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


# Observing a page and acting in it.

# One observation reads at most this much of a page. A walk of this many rows takes some hundred milliseconds.
MAX_ROWS: Final = 12_000
MAX_WALK_MS: Final = 2_000
# A name is cut to this length in the text. The page's script returns more, so that a secret is found whole before.
MAX_SHOWN_NAME: Final = 160
MAX_SHOWN_TEXT: Final = 400
# The default size of a tree: some four thousand tokens.
DEFAULT_TREE_BYTES: Final = 16 * KIB
# Texts are read beyond the shown part, for the same reason.
READ_BEYOND_CHARS: Final = 4 * KIB
# The frames that one observation enters. A page may have made thousands.
MAX_FRAMES: Final = 64
# The refs that one tab remembers. The oldest go first.
MAX_REFS: Final = 20_000
# Elements that an error names.
MAX_NAMED: Final = 5
# A name in an error.
MAX_ERROR_NAME: Final = 60
# One answer of the page's script may take this much longer than the time limit of the script itself.
ANSWER_SECONDS: Final = 5.0
# The largest picture: Chromium's own surfaces end at 16,384.
MAX_PICTURE_PIXELS: Final = 16_384
# Files of one input, and a name among them.
MAX_UPLOADS: Final = 32
MAX_UPLOAD_NAME_BYTES: Final = 200
# Steps of a drag: a page that follows the mouse sees it pass.
DRAG_STEPS: Final = 5
# An element that was ready at the very end of its time still gets its input.
MIN_INPUT_SECONDS: Final = 2.0


# Requests to the browser daemon, and its answers.

# The uploads of one action are the largest request. A picture, a document or a storage state is the largest answer.
MAX_MESSAGE_BYTES: Final = 16 * MIB
MAX_UPLOAD_BYTES: Final = 12 * MIB
CHUNK_BYTES: Final = 256 * KIB
MAX_ACTIONS_PER_BATCH: Final = 32
MAX_INPUTS_PER_CALL: Final = 64
MAX_LABEL_CHARS: Final = 128
MAX_REASON_CHARS: Final = 256
MAX_HOST_RULES: Final = 256

# How long a client waits. The daemon's own limits are shorter; these are for one that hangs.
QUICK_SECONDS: Final = 15.0
OPEN_SECONDS: Final = 60.0
CLOSE_SECONDS: Final = 60.0
ACTION_SECONDS: Final = 60.0

# Sessions: each is a browser of about 200 MB that works.
MAX_SESSIONS: Final = 30
MAX_SESSIONS_PER_PRINCIPAL: Final = 8
HIGHEST_SESSIONS: Final = 256
# Between two sweeps for sessions whose time is up. Every call checks its session as well.
SWEEP_SECONDS: Final = 15.0
# Chromium opens at most 32 connections through one proxy, and some for what it preconnects.
MAX_CONNECTIONS: Final = 64
# Recently ended sessions: their owners get the reason.
MAX_ENDED_KEPT: Final = 512
# Before a session closes, its tabs are read. A page that hangs gets no more time than this.
READ_STATE_SECONDS: Final = 5.0
# Watchers of one session at once, and the queue of one watcher. A slow one misses pictures, not events.
MAX_WATCHERS: Final = 8
MAX_WAITING_EVENTS: Final = 1_024
MAX_CALLS_AT_ONCE: Final = 512
# Running calls get this much time when the daemon stops.
STOP_SECONDS: Final = 2.0
