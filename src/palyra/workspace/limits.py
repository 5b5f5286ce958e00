"""Every bound of the file tools, with its reason."""

from palyra.limits import KIB, MIB

# The kernel's PATH_MAX counts the closing NUL, so a usable path is one byte shorter; NAME_MAX does not count it.
PATH_MAX_BYTES = 4096
NAME_MAX_BYTES = 255

# Integers beyond this have no canonical JSON; sizes and offsets of sparse files can be larger and are held to it.
MAX_SAFE_INTEGER = 2**53 - 1

# A resolution that races with renames is tried again this often before the call fails as busy.
OPENAT2_ATTEMPTS = 64

# fs.read. The default, even if every byte becomes a six-character JSON escape, fits in one call's output.
DEFAULT_READ_BYTES = 128 * KIB
MAX_READ_BYTES = 512 * KIB
# A file up to this size is read whole so that its digest can guard a later write.
WHOLE_FILE_BYTES = 8 * MIB
# How much is read or written between two looks at the cancellation flag.
CHUNK_BYTES = 256 * KIB

# fs.write, fs.patch. Both build the new file in memory before it replaces the old one.
MAX_FILE_BYTES = 8 * MIB
MAX_EDITS = 256
MAX_HUNKS = 1_000

# fs.list. Names are counted as shown: an escaped byte takes four characters.
DEFAULT_LIST_ENTRIES = 500
MAX_LIST_ENTRIES = 5_000
MAX_LIST_TEXT_CHARS = 384 * KIB
# Entries read from one directory before sorting; a directory beyond it is listed in part and the result says so.
MAX_DIRECTORY_ENTRIES = 100_000
# A walk holds one descriptor per level.
MAX_WALK_DEPTH = 64

# fs.search.
MAX_QUERY_CHARS = 1_000
MAX_GLOB_CHARS = 1_000
MAX_GLOB_ALTERNATIVES = 64
DEFAULT_MATCHES = 100
MAX_MATCHES = 1_000
# Only the head of a longer line is searched: generated files hold lines of megabytes.
MAX_LINE_CHARS = 4_096
# The part of a matching line that is shown, and how much of it lies before the match.
MAX_MATCH_TEXT_CHARS = 240
MATCH_TEXT_LEAD_CHARS = 80
MAX_MATCH_TEXT_TOTAL_CHARS = 384 * KIB
MAX_SEARCH_FILE_BYTES = 4 * MIB
MAX_SEARCH_TOTAL_BYTES = 256 * MIB
MAX_SEARCH_FILES = 50_000
SEARCH_SECONDS = 10.0
# A NUL byte within this head makes a file binary.
BINARY_PROBE_BYTES = 8 * KIB

# The process that runs a regular expression: killed at the search's deadline, and by these if its parent is gone.
REGEX_CPU_SECONDS = 15
REGEX_MEMORY_BYTES = 512 * MIB
# How often a wait looks at the cancellation flag.
POLL_SECONDS = 0.05

# Protected names are held in memory and checked on every write.
MAX_PROTECTED_NAMES = 100_000
