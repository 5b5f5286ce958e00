"""The bounds of what the browser daemon is asked and answers, each with its reason."""

from typing import Final

from palyra.limits import KIB, MIB

# Uploads of one action are the largest thing asked; a picture, a document or a storage state the largest answer.
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
# Between two looks for sessions whose time is up; every call looks as well.
SWEEP_SECONDS: Final = 15.0
# Chromium opens at most 32 connections through one proxy, and some for what it preconnects.
MAX_CONNECTIONS: Final = 64
# Sessions that ended lately: their owners are told why.
MAX_ENDED_KEPT: Final = 512
# What a page is asked before it is closed: where its tabs are. One that hangs is not waited for.
LAST_WORDS_SECONDS: Final = 5.0
# Watchers of one session at once, and what one of them may have waiting: a slow one misses pictures, not events.
MAX_WATCHERS: Final = 8
MAX_WAITING_EVENTS: Final = 1_024
MAX_CALLS_AT_ONCE: Final = 512
# What calls that run get when the daemon stops.
STOP_SECONDS: Final = 2.0
