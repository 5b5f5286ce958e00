"""Every bound of the process sandbox, with its reason."""

from typing import Final

from palyra.limits import DEFAULT_CALL_TIMEOUT_MS, KIB, MAX_CALL_TIMEOUT_MS, MIB

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

# The kernel gives up after 40 links in one path.
MAX_LINKS: Final = 40
# How many levels an argument such as a=b:c,d is split into. Deeper parts are judged as they are.
MAX_ARGUMENT_NESTING: Final = 6
# How many letters of `-xzfNAME` may be options before NAME starts.
MAX_CLUSTERED_LETTERS: Final = 12

# A file outside PATH is compared with the programs on it by content; larger ones only by size and inode.
MAX_DIGESTED_BYTES: Final = 256 * MIB
# Enough of a file to see a `#!` line: the kernel reads 256 bytes.
SHEBANG_BYTES: Final = 256

# How much of an argument a refusal shows.
MAX_SHOWN_CHARS: Final = 200

# How much one call of process.logs returns.
MAX_LOG_BYTES: Final = 256 * KIB
DEFAULT_LOG_BYTES: Final = 64 * KIB
MAX_HANDLE_CHARS: Final = 64

GIB: Final = 1024 * MIB

# The defaults of a call. A compiler or a test run fits; a runaway program does not harm the machine.
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

# The files that a sandbox may keep in memory. Where cgroups work, the memory limit counts them too.
TMP_BYTES: Final = 512 * MIB
HOME_BYTES: Final = 512 * MIB
SHM_BYTES: Final = 64 * MIB
RUN_BYTES: Final = 16 * MIB

# bubblewrap 0.8 takes 9,000 arguments and reads the whole mount table for each mount: 250 mounts cost 0.1 s, 2,000 cost
# seven. Protected names beyond this many mounts are covered by making a directory around them read-only.
MAX_PROTECTED_MOUNTS: Final = 256
# Names directly in the root cannot be covered that way: they may take this many mounts (about a second).
MAX_UNFOLDED_MOUNTS: Final = 1_000
MAX_TOOL_ROOTS: Final = 16
MAX_EXTRA_ENVIRONMENT: Final = 128
MAX_ENVIRONMENT_VALUE_BYTES: Final = 32 * KIB

# The scan for protected names. Directories beyond it are read-only during a call, and a call that makes more files than
# the scan after it can read fails. A part of a found name's path counts as much as a file: a million files take a
# second or two and some hundred megabytes.
MAX_SCANNED_ENTRIES: Final = 1_000_000
# How many files more than before its call a program may leave behind.
MAX_NEW_ENTRIES: Final = 1_000_000
# Each level takes some memory.
MAX_SCAN_DEPTH: Final = 10_000
# Directories held open at once; those above are found again by their inode.
MAX_SCAN_DESCRIPTORS: Final = 64
# Directories of one directory that are named one by one if they were not scanned.
MAX_UNSEEN_IN_ONE: Final = 16
# 15 names of 255 bytes are less than the longest path that the kernel takes at once.
NAMES_AT_ONCE: Final = 15
# Each directory above a mount is a mount too. A directory at this depth covers deeper names.
MAX_MOUNT_DEPTH: Final = 100
# The kernel takes paths of 4,096 bytes; bubblewrap puts a few of its own before them.
MAX_MOUNT_PATH_BYTES: Final = 4_000
# Links with a protected name are followed to their real place; a chain or a fan of links is cut here.
MAX_FOLLOWED_LINKS: Final = 10_000
# A configuration of git is a few kilobytes; each one that is judged is kept in memory during a call.
MAX_JUDGED_BYTES: Final = 256 * KIB
# Git's files are looked at this often while a program runs: a person hardly types a command in less.
WATCH_SECONDS: Final = 0.25
# How many of them are looked at, and how many harmful ones are undone before the program is ended.
MAX_WATCHED: Final = 1_000
MAX_UNDONE: Final = 8
# How many new names a receipt lists: it stays readable when a program makes a million of them.
MAX_REPORTED_NAMES: Final = 32

# Files of the host whose text is copied into the sandbox (resolv.conf, hosts).
MAX_COPIED_FILE_BYTES: Final = 256 * KIB

# bubblewrap's description of the sandbox is a few hundred bytes.
MAX_INFO_BYTES: Final = 4 * KIB
# How long a sandbox may take to be built before the call is refused, and how long to wait for the filter.
READBACK_SECONDS: Final = 10.0
FILTER_LOOK_SECONDS: Final = 2.0
# A sandbox is complete three to five milliseconds after its first process exists.
SETTLE_FIRST_SECONDS: Final = 0.002
SETTLE_POLL_SECONDS: Final = 0.0003
LONGEST_POLL_SECONDS: Final = 0.01

# How many prewarmed sandboxes wait: for each profile, and in all. Each is four small processes that use no processor
# time until then.
WARM_PER_PROFILE: Final = 2
MAX_WARM: Final = 8
# An unused one ends after this long. The next call of its profile is a cold one.
WARM_SECONDS: Final = 60.0
# The delay after a call, so that building the next sandbox does not compete with the caller.
WARM_REFILL_SECONDS: Final = 0.01

PROBE_SECONDS: Final = 10.0

# Sockets in a sandbox's own network, which the daemon serves from outside.
# The resolver: a program names the hosts that it wants.
SANDBOX_DNS_PORT: Final = 53
# SOCKS5 and HTTP for programs that want a proxy; the number that SOCKS clients assume.
SANDBOX_PROXY_PORT: Final = 1_080
# Each is a listening socket in the sandbox; all fit in one message with the resolver's and the proxy's.
MAX_ALLOWED_PORTS: Final = 64
# Connections that may wait to be accepted on each.
LISTENER_BACKLOG: Final = 128
# Opening takes a millisecond; a machine that needs longer than this is in trouble.
SOCKETS_OPEN_SECONDS: Final = 10.0
# How long a listener may take to stop after the program has ended. Then its connections are cut.
LISTENER_CLOSE_SECONDS: Final = 5.0
# How many refused connections a receipt lists: it stays readable when a program tries a million.
MAX_REPORTED_REFUSALS: Final = 8
# Processes that wait to open sockets: each serves one call, and calls come in bursts.
READY_SOCKET_HELPERS: Final = 4
# Orders given to them and not yet answered: as many as surely fit the socket between, and its descriptors in flight.
MAX_SOCKET_ORDERS: Final = 64

# Files that a profile adds to the sandbox: certificate bundles, of which the system's own is a quarter of a megabyte.
MAX_EXTRA_FILES: Final = 8
MAX_EXTRA_FILE_BYTES: Final = 4 * MIB
