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
