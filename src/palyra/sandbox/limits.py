"""Every bound of the process sandbox's isolation, with its reason."""

from typing import Final

from palyra.limits import DEFAULT_CALL_TIMEOUT_MS, KIB, MAX_CALL_TIMEOUT_MS, MIB

# Every bound of the checks that come before a program is started, with its reason.

# One call's command line. Far below the kernel's own limits, far above what people type.
MAX_COMMAND_BYTES: Final = 256
MAX_ARGUMENTS: Final = 128
MAX_ARGUMENT_BYTES: Final = 4_096
MAX_CWD_BYTES: Final = 4_096
MAX_TIMEOUT_MS: Final = MAX_CALL_TIMEOUT_MS

MAX_ENVIRONMENT_VARIABLES: Final = 64
MAX_ENVIRONMENT_NAME_BYTES: Final = 128
MAX_GUARDED_VALUE_BYTES: Final = 4_096

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

# What of an argument is shown in a refusal.
MAX_SHOWN_CHARS: Final = 200

# Background processes: what one look at the logs returns.
MAX_LOG_BYTES: Final = 256 * KIB
DEFAULT_LOG_BYTES: Final = 64 * KIB
MAX_HANDLE_CHARS: Final = 64


GIB: Final = 1024 * MIB

# What a call gets where nobody says more. A compiler or a test run fits; a runaway does not hurt the machine.
DEFAULT_CPU_SECONDS: Final = 60
DEFAULT_MEMORY_BYTES: Final = 2 * GIB
DEFAULT_PIDS: Final = 256
DEFAULT_OPEN_FILES: Final = 1_024
DEFAULT_FILE_BYTES: Final = 1 * GIB
# An agent reads what a program prints; more belongs in a file.
DEFAULT_OUTPUT_BYTES: Final = 64 * KIB
# A person sees output as it comes, and a terminal forgets.
PERSON_OUTPUT_BYTES: Final = 16 * MIB
DEFAULT_TIMEOUT_MS: Final = DEFAULT_CALL_TIMEOUT_MS

# The most a profile may ask for.
MAX_CPU_SECONDS: Final = 24 * 3_600
# Small enough that adding two limits never overflows a signed 64-bit rlimit.
MAX_BYTES: Final = 2**50
MAX_PIDS: Final = 65_536
MAX_OPEN_FILES: Final = 1_048_576
MAX_OUTPUT_BYTES: Final = 64 * MIB

# bubblewrap itself needs descriptors and a few processes before the program runs under the same limits.
MIN_OPEN_FILES: Final = 64
MIN_PIDS: Final = 4

# What a sandbox may keep in memory as files. The memory limit counts it too, where cgroups are usable.
TMP_BYTES: Final = 512 * MIB
HOME_BYTES: Final = 512 * MIB
SHM_BYTES: Final = 64 * MIB
RUN_BYTES: Final = 16 * MIB

# bubblewrap 0.8 takes 9,000 arguments and reads the whole mount table for each mount: 250 mounts cost 0.1 s, 2,000 cost
# seven. Protected names beyond this many mounts are covered by making a directory around them read-only.
MAX_PROTECTED_MOUNTS: Final = 256
# Names that lie directly in the root cannot be covered so: they may take this many (about a second).
MAX_UNFOLDED_MOUNTS: Final = 1_000
MAX_TOOL_ROOTS: Final = 16
MAX_EXTRA_ENVIRONMENT: Final = 128
MAX_ENVIRONMENT_VALUE_BYTES: Final = 32 * KIB

# The walk that looks for protected names. What lies beyond is read-only as a whole during a call, and a call that makes
# more than can be looked through afterwards fails. A part of a found name's path counts as much as a file: a million
# files take a second or two and some hundred megabytes.
MAX_SCANNED_ENTRIES: Final = 1_000_000
# How many files more than before its call a program may leave behind.
MAX_NEW_ENTRIES: Final = 1_000_000
# Each level takes some memory.
MAX_SCAN_DEPTH: Final = 10_000
# Directories held open at once; those above are found again by their inode.
MAX_SCAN_DESCRIPTORS: Final = 64
# Directories of one directory that are told one by one when they were not looked through.
MAX_UNSEEN_IN_ONE: Final = 16
# 15 names of 255 bytes are less than the longest path that the kernel takes at once.
NAMES_AT_ONCE: Final = 15
# Each directory above a mount is one too. Names deeper than this are covered by a directory above them that is not.
MAX_MOUNT_DEPTH: Final = 100
# The kernel takes paths of 4,096 bytes; bubblewrap puts a few of its own before them.
MAX_MOUNT_PATH_BYTES: Final = 4_000
# Links with a protected name are followed to their real place; a chain or a fan of links is cut here.
MAX_FOLLOWED_LINKS: Final = 10_000
# What is said of names that appeared: the receipt stays readable when a program makes a million of them.
MAX_REPORTED_NAMES: Final = 32

# Files of the host whose text is copied into the sandbox (resolv.conf, hosts).
MAX_COPIED_FILE_BYTES: Final = 256 * KIB

# bubblewrap's description of the sandbox is a few hundred bytes.
MAX_INFO_BYTES: Final = 4 * KIB
# How long a sandbox may take to be built before the call is refused, and how long the filter is waited for.
READBACK_SECONDS: Final = 10.0
FILTER_LOOK_SECONDS: Final = 2.0
# A sandbox is complete three to five milliseconds after its first process exists.
SETTLE_FIRST_SECONDS: Final = 0.002
SETTLE_POLL_SECONDS: Final = 0.0003
LONGEST_POLL_SECONDS: Final = 0.01

# Sandboxes that are built and wait for a program: for each profile, and in all. Each is four small processes and, as
# long as it is not used, no work.
WARM_PER_PROFILE: Final = 2
MAX_WARM: Final = 8
# One that was not used for so long is ended. The next call of its profile is a cold one.
WARM_SECONDS: Final = 60.0
# After a call, so that building the next does not compete with what the caller does with the answer.
WARM_REFILL_SECONDS: Final = 0.01

PROBE_SECONDS: Final = 10.0

# The door: sockets opened in a sandbox's own network and served from outside.
# Where a program finds its resolver; names, not addresses, are how a program says what it wants.
SANDBOX_DNS_PORT: Final = 53
# SOCKS5 and HTTP for programs that want a proxy; the number that SOCKS clients assume.
SANDBOX_PROXY_PORT: Final = 1_080
# Each is a listening socket in the sandbox; with the resolver's and the proxy's all fit in one message.
MAX_ALLOWED_PORTS: Final = 64
# Connections that may wait to be accepted on each.
LISTENER_BACKLOG: Final = 128
# Opening takes a millisecond; a machine that needs longer than this is in trouble.
SOCKETS_OPEN_SECONDS: Final = 10.0
# Serving is told to stop when the program has ended; connections that are left then are cut.
LISTENER_CLOSE_SECONDS: Final = 5.0
# What is said of refused connections in a receipt: it stays readable when a program tries a million.
MAX_REPORTED_REFUSALS: Final = 8
# Processes that wait to open sockets: each serves one call, and calls come in bursts.
READY_SOCKET_HELPERS: Final = 4
# Orders given to them and not yet answered: as many as surely fit the socket between, and its descriptors in flight.
MAX_SOCKET_ORDERS: Final = 64

# Files that a profile adds to the sandbox: certificate bundles, of which the system's own is a quarter of a megabyte.
MAX_EXTRA_FILES: Final = 8
MAX_EXTRA_FILE_BYTES: Final = 4 * MIB
