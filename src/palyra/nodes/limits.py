"""Every bound of the node host, with its reason."""

from typing import Final

from palyra.limits import MAX_CALL_TIMEOUT_MS, MIB

# Requests that run at once. The next one fails with "busy", since a queue could grow without bound.
MAX_RUNNING: Final = 16
# Requests that are not settled, finished ones included: the most that a daemon can make this device keep.
MAX_OPEN: Final = 256
# Messages of the daemon that were read but not handled yet. Beyond these the stream is not read.
MAX_UNHEARD: Final = 64
# The size of one result, even if the daemon accepts more.
MAX_RESULT_BYTES: Final = 1 * MIB
# No request runs longer than the longest call.
MAX_WORK_MS: Final = MAX_CALL_TIMEOUT_MS
# An unreported result is kept for as long as a call can wait for it.
RESULT_KEPT_MS: Final = MAX_CALL_TIMEOUT_MS
# Ids of finished requests that are kept, so that a repeated request is not done again.
MAX_REMEMBERED: Final = 256

# A daemon that is starting may refuse the device. This many refusals in a row are final.
MAX_REFUSALS: Final = 3

# A link is dead after this many intervals without an answer, even if TCP does not notice.
SILENT_INTERVALS: Final = 3
# The shortest interval that the device accepts from the daemon, to limit its load.
SHORTEST_HEARTBEAT_MS: Final = 50
# How long opening a link may take, registration included.
OPEN_SECONDS: Final = 15.0
# How long one unary call may take.
CALL_SECONDS: Final = 15.0
# How long a replaced link may still deliver messages.
RETIRE_SECONDS: Final = 5.0
# How long the delivery of a farewell may take.
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
# A person sees this much of an input. The digest covers the rest.
MAX_SHOWN_INPUT_CHARS: Final = 2_000
