"""Every bound of the checks that come before a program is started, with its reason."""

from typing import Final

from palyra.limits import KIB, MAX_CALL_TIMEOUT_MS, MIB

# One call's command line. Far below the kernel's own limits, far above what people type.
MAX_COMMAND_BYTES: Final = 256
MAX_ARGUMENTS: Final = 128
MAX_ARGUMENT_BYTES: Final = 4_096
MAX_CWD_BYTES: Final = 4_096
MAX_TIMEOUT_MS: Final = MAX_CALL_TIMEOUT_MS

MAX_ENVIRONMENT_VARIABLES: Final = 64
MAX_ENVIRONMENT_NAME_BYTES: Final = 128
MAX_ENVIRONMENT_VALUE_BYTES: Final = 4_096

MAX_REQUESTED_HOSTS: Final = 64

# Fits, as base64 and beside the largest command line, into the input of a process call.
MAX_STDIN_BYTES: Final = 64 * KIB

# The kernel gives up after 40 links in one path; so do we.
MAX_LINKS: Final = 40
# An argument such as a=b:c,d is taken apart this often. What is nested deeper is judged as it stands.
MAX_ARGUMENT_NESTING: Final = 6
# How many letters of `-xzfNAME` may be options before NAME starts.
MAX_CLUSTERED_LETTERS: Final = 12

# A file outside PATH is compared with the programs on it by content; larger ones only by size and inode.
MAX_DIGESTED_BYTES: Final = 256 * MIB
# Enough of a file to see a `#!` line: the kernel reads 256 bytes.
SHEBANG_BYTES: Final = 256

# What is known of a program on PATH is kept for so many of them, if nothing it depends on changed just before. File
# systems keep times in steps of up to ten milliseconds; some in seconds.
MAX_KEPT_PROGRAMS: Final = 256
SETTLED_NANOSECONDS: Final = 3_000_000_000

# What of an argument is shown in a refusal.
MAX_SHOWN_CHARS: Final = 200

# Background processes: what one look at the logs returns.
MAX_LOG_BYTES: Final = 256 * KIB
DEFAULT_LOG_BYTES: Final = 64 * KIB
MAX_HANDLE_CHARS: Final = 64
