"""Every bound of the node host, with its reason."""

from typing import Final

from palyra.limits import MAX_CALL_TIMEOUT_MS, MIB

# Requests worked on at once; the next one is told that the device is busy rather than queued without end.
MAX_RUNNING: Final = 16
# Requests that are not settled, finished ones included: what a daemon may make this device keep.
MAX_OPEN: Final = 256
# Messages of the daemon that were read and not acted on yet: beyond these its line is not read.
MAX_UNHEARD: Final = 64
# What one result may hold, whatever the daemon would take.
MAX_RESULT_BYTES: Final = 1 * MIB
# No request is worked on longer than the longest call lasts.
MAX_WORK_MS: Final = MAX_CALL_TIMEOUT_MS
# A result that could not be handed in is kept as long as a call can still wait for it, and then forgotten.
RESULT_KEPT_MS: Final = MAX_CALL_TIMEOUT_MS
# Ids of finished requests that are remembered, so that one that comes again is not done again.
MAX_REMEMBERED: Final = 256

# An answer that the device is not welcome may be a daemon in the middle of its start; this many in a row are not.
MAX_REFUSALS: Final = 3

# A link whose heartbeats stay unanswered for this many intervals is dead, whatever TCP believes.
SILENT_INTERVALS: Final = 3
# Whatever interval the daemon asks for, the device does not wear itself out.
SHORTEST_HEARTBEAT_MS: Final = 50
# How long opening a link may take, registration included.
OPEN_SECONDS: Final = 15.0
# How long one unary call may take.
CALL_SECONDS: Final = 15.0
# How long a link that was replaced may still bring what was on its way.
RETIRE_SECONDS: Final = 5.0
# How long a farewell may take to be heard.
FAREWELL_SECONDS: Final = 1.0

# A note holds at most a result, in base 64, and a few names.
MAX_NOTE_FILE_BYTES: Final = 2 * MAX_RESULT_BYTES

# With what every device offers they fit into one inventory.
MAX_COMMANDS: Final = 48
MAX_ARGV: Final = 64
MAX_PARAMETERS: Final = 16
MAX_PARAMETER_CHARS: Final = 4_096
DEFAULT_PARAMETER_CHARS: Final = 256
MAX_URL_CHARS: Final = 2_048
MAX_NOTIFICATION_CHARS: Final = 512
# How long the program that opens a URL or shows a notification may take to do it.
DESKTOP_SECONDS: Final = 10.0
# A person is shown this much of what is asked; the digest stands for the rest.
MAX_SHOWN_INPUT_CHARS: Final = 2_000
