"""The bounds of what every kind of paired device does: pair, keep its pairing, come back."""

from typing import Final

from palyra.limits import KIB, MAX_TOOL_INPUT_BYTES, MAX_TOOL_OUTPUT_BYTES, MIB

# Reconnecting: the first try comes soon, later ones spare a daemon that is down, and no two devices keep step.
FIRST_DELAY_MS: Final = 500
LONGEST_DELAY_MS: Final = 30_000

# One look for the decision of a person; the next follows at once.
DECISION_WAIT_MS: Final = 25_000
# Addresses of one daemon that are tried in turn.
MAX_SERVERS: Final = 8

# The longest file of the device's folder: a key, a few certificates, names.
MAX_DEVICE_FILE_BYTES: Final = 256 * KIB


# The bounds of pairing and of what is kept about devices, each with its reason.

# Codes. Long enough to walk to the other machine, short enough that nobody finds one on a desk.
DEFAULT_CODE_TTL_SECONDS: Final = 600
MIN_CODE_TTL_SECONDS: Final = 30
MAX_CODE_TTL_SECONDS: Final = 86_400
# A person pairs a handful of machines at once; each live code is one more target for guesses.
MAX_LIVE_CODES: Final = 32
# Out of a hundred million PINs: the chance of guessing one before it burns stays below one in ten million.
MAX_WRONG_GUESSES: Final = 5

# How long a request waits for a person, and how long an approved device may take to fetch its certificate.
PAIRING_DECISION_MS: Final = 86_400_000
PAIRING_COLLECTION_MS: Final = 86_400_000
# Requests that wait for a person at once: more could not be told apart on one screen.
MAX_PENDING_PAIRINGS: Final = 32

# What stays on record beyond its use, for people to look at; the journal keeps the rest.
MAX_ENDED_CODES: Final = 64
MAX_ENDED_PAIRINGS: Final = 128
MAX_FINISHED_REQUESTS: Final = 256
# Devices of one daemon: a thousand workers, each with its proxy, and as many others. The state file is rewritten whole
# with every change, which at this size takes some hundredths of a second.
MAX_NODES: Final = 4_096

# Text that a device says about itself.
MAX_DEVICE_NAME_CHARS: Final = 64
MAX_PLATFORM_CHARS: Final = 64
MAX_VERSION_CHARS: Final = 64
MAX_CAPABILITIES: Final = 64

# Pairing messages: a certificate request is below 1 KiB; everything else is shorter.
MAX_CSR_BYTES: Final = 4 * KIB
MAX_PAIRING_BODY_BYTES: Final = 16 * KIB

# Attempts at once, and how long one may take from its begin to its end: scrypt on a slow device, and some network.
MAX_PAIRING_SESSIONS: Final = 64
PAIRING_SESSION_SECONDS: Final = 60.0
# How long one question for the decision may be held, and how often the state is looked at meanwhile: the decision may
# be another process's.
MAX_PAIRING_WAIT_MS: Final = 60_000
PAIRING_LOOK_SECONDS: Final = 1.0

# The bootstrap listener, which anybody on the network may reach.
MAX_PAIRING_CONNECTIONS: Final = 128
MAX_PAIRING_CONNECTIONS_PER_ADDRESS: Final = 16
MAX_PAIRING_HEAD_BYTES: Final = 8 * KIB
# From the connection, or the end of the answer before, to the end of a request.
PAIRING_REQUEST_SECONDS: Final = 15.0
PAIRING_HANDSHAKE_SECONDS: Final = 10.0
# A device's side: how long it takes an answer, beyond what it asked to wait; and how large one may be.
PAIRING_ANSWER_SECONDS: Final = 20.0
MAX_PAIRING_ANSWER_BYTES: Final = 64 * KIB


# The bounds of what devices and the daemon say to each other, each with its reason.

PROTOCOL_VERSION: Final = 1
# Where an answer that says no has our own code for it, among its trailing metadata.
CODE_KEY: Final = "palyra-code"

# A device is seen to be gone within a minute; a heartbeat is a few dozen bytes.
DEFAULT_HEARTBEAT_SECONDS: Final = 15.0
# Three heartbeats may be lost before a device counts as gone.
DEFAULT_HEARTBEAT_TIMEOUT_SECONDS: Final = 45.0
MIN_HEARTBEAT_SECONDS: Final = 0.05
MAX_HEARTBEAT_SECONDS: Final = 3600.0

# What a device may tell of each capability: read by people and by policies, and kept for every device.
MAX_CAPABILITY_NAME_CHARS: Final = 64
MAX_DESCRIPTION_CHARS: Final = 1024
MAX_SCHEMA_BYTES: Final = 16 * KIB
# All capabilities of one device together, as they are stored.
MAX_INVENTORY_BYTES: Final = 256 * KIB

# What is sent to a device fits into a call's arguments; what comes back fits into a call's result.
MAX_INPUT_BYTES: Final = MAX_TOOL_INPUT_BYTES
DEFAULT_MAX_RESULT_BYTES: Final = 256 * KIB
MIN_RESULT_BYTES: Final = 1 * KIB
MAX_RESULT_BYTES: Final = MAX_TOOL_OUTPUT_BYTES - 4 * KIB
MAX_FAILURE_CODE_CHARS: Final = 64
MAX_FAILURE_MESSAGE_CHARS: Final = 1024
MAX_REASON_CHARS: Final = 256

# Open requests of one device, queued or with it: a device that is slow holds up nobody else's memory.
MAX_OPEN_REQUESTS_PER_DEVICE: Final = 64
# Inputs of all open requests: they are kept so that a daemon that comes back can still send them.
MAX_OPEN_INPUT_BYTES: Final = 4 * MIB
# Calls that run, or wait for a person, because one device asked for them.
MAX_EXECUTIONS_PER_DEVICE: Final = 8
# Requests that a device may name as still open when it comes back: more than it could have been given.
MAX_OPEN_REQUEST_IDS: Final = 4 * MAX_OPEN_REQUESTS_PER_DEVICE
# Commands that wait for one stream: cancels and dispatches of all its open requests, and their like.
MAX_WAITING_COMMANDS: Final = 8 * MAX_OPEN_REQUESTS_PER_DEVICE

# Messages on the wire: the largest result with room to be refused by its own code rather than by the transport.
MAX_MESSAGE_BYTES: Final = 2 * MIB
MAX_STREAMS_PER_CONNECTION: Final = 32
# Of what goes to a device. The buffer for it stays for as long as the connection: with gRPC's 16 KiB an idle connection
# takes 7 KiB more of memory, and files come no faster.
TLS_RECORD_BYTES: Final = 1 * KIB
# A connection that does nothing at all is asked whether it is still there after this long, and cut after that.
KEEPALIVE_MS: Final = 20_000
KEEPALIVE_TIMEOUT_MS: Final = 20_000
# A connection without any call, which an honest device has only while it changes from one to the next.
IDLE_CONNECTION_MS: Final = 120_000
# Pings from a device: more often is abuse, and gRPC ends the connection.
SHORTEST_PING_MS: Final = 5_000
HANDSHAKE_TIMEOUT_MS: Final = 10_000
# Connections at once, those included whose other end has not shown who it is yet: four for each device there may be. It
# is never more than half of the descriptors this process may have: the rest is for what is not devices.
MAX_CONNECTIONS: Final = 16_384
DESCRIPTOR_SHARE: Final = 2
# Headers of a call; ours have none of their own.
MAX_METADATA_BYTES: Final = 8 * KIB
# Streams that end with the daemon get this long to hear its goodbye.
GOODBYE_SECONDS: Final = 1.0

# Refusals of one kind by one certificate are counted always and recorded this often: a revoked device that asks
# again and again does not fill the journal. So many kinds are told apart.
REFUSALS_RECORDED_EVERY_SECONDS: Final = 60.0
MAX_REFUSAL_KINDS: Final = 1024
