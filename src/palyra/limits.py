"""Bounds that more than one package uses, each with its reason."""

KIB = 1024
MIB = 1024 * KIB

# Intake. A process call may carry a script on its command line, a plugin call a document; nothing else needs more.
MAX_TOOL_INPUT_BYTES = 64 * KIB
MAX_PROCESS_RUNNER_TOOL_INPUT_BYTES = 128 * KIB
MAX_PLUGIN_TOOL_INPUT_BYTES = 448 * KIB
# Deeper JSON has no honest use in arguments and costs the stack of every parser that reads it.
MAX_JSON_DEPTH = 64

# What one call may return to the agent; larger results belong in a file.
MAX_TOOL_OUTPUT_BYTES = 1 * MIB

# Results that are kept: as long as a person asks about a call, and as much as fits beside the journal on a small disk.
DEFAULT_RESULTS_DAYS = 30
MAX_RESULTS_DAYS = 36_500
DEFAULT_RESULTS_BYTES = 1024 * MIB

# Deadlines.
DEFAULT_CALL_TIMEOUT_MS = 30_000
MAX_CALL_TIMEOUT_MS = 600_000
# How long a caller may hold a connection open waiting for a person.
MAX_APPROVAL_WAIT_MS = 600_000
# A stopping daemon lets running calls finish this long, then cancels them.
GRACEFUL_STOP_SECONDS = 10.0

# A run's budget where nobody set one.
DEFAULT_MAX_CALLS_PER_RUN = 1_000
DEFAULT_RUN_WALL_MS = 6 * 3_600_000
DEFAULT_RUN_EGRESS_BYTES = 256 * MIB
DEFAULT_RUN_WASM_FUEL = 10_000_000_000
DEFAULT_RUN_BROWSER_ACTIONS = 2_560
# Runs that one principal may open in an hour: one a minute. An agent needs one for each of its tasks.
DEFAULT_RUNS_PER_HOUR = 60

# HTTP. The largest tool input, as an escaped JSON string inside an envelope, still fits.
MAX_HTTP_BODY_BYTES = 1 * MIB
# Request line and headers; a token and a few names need a hundredth of it.
MAX_HTTP_HEAD_BYTES = 64 * KIB
# Calls the daemon works on at once; it refuses further ones with a hint to come back, instead of queueing them.
MAX_CONCURRENT_CALLS = 256
# Those of one principal: four busy agents fit beside each other.
MAX_CONCURRENT_CALLS_PER_PRINCIPAL = 64
# Streams of events that one principal follows: one for each of its calls.
MAX_STREAMS_PER_PRINCIPAL = 64
# Those that only an operator's own call may take, so that a person can act while agents flood.
CALLS_FOR_OPERATORS = 16

# Journal.
MAX_EVENT_PAYLOAD_BYTES = 64 * KIB
# A string in a journal payload beyond this is replaced by its head, its length and its digest.
MAX_JOURNAL_STRING_CHARS = 512
CHECKPOINT_EVERY_EVENTS = 1_000
CHECKPOINT_EVERY_SECONDS = 60.0
# Arguments kept whole beside the journal: a quarter of a year, as most rules for audits ask. A busy agent writes some
# ten megabytes a day.
DEFAULT_ARGUMENTS_DAYS = 90
DEFAULT_ARGUMENTS_BYTES = 2_048 * MIB
# Held back on disk so that calls already running can be recorded as finished when the disk fills up.
JOURNAL_DISK_RESERVE_BYTES = 4 * MIB

# Requests for approval that one principal may have waiting: one agent must not hide another's from the person.
MAX_PENDING_APPROVALS_PER_PRINCIPAL = 64
# A no that outlives the day is a matter of policy.
MAX_DENIED_AGAIN_SECONDS = 86_400
# A token for ten years is one nobody will remember.
MAX_TOKEN_TTL_SECONDS = 10 * 365 * 86_400
# Rejected tokens are counted always and recorded this often, so that guessing cannot fill the journal.
REJECTIONS_RECORDED_EVERY_SECONDS = 60.0

# Names and other short text from outside.
MAX_PRINCIPAL_CHARS = 128
MAX_TOOL_NAME_CHARS = 128
MAX_CONTEXT_VALUE_CHARS = 128
