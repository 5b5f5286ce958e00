"""The bounds of pairing, of the connections of devices, and of what is stored about them, each with its reason."""

from typing import Final

from palyra.limits import KIB, MAX_TOOL_INPUT_BYTES, MAX_TOOL_OUTPUT_BYTES, MIB

# Reconnecting: the first try comes soon; later ones come slower, to spare a daemon that restarts.
FIRST_DELAY_MS: Final = 500
LONGEST_DELAY_MS: Final = 30_000

# One request for the person's decision may take this long. The next one follows at once.
DECISION_WAIT_MS: Final = 25_000
# Addresses of one daemon that are tried in turn.
MAX_SERVERS: Final = 8

# The longest file of the device's folder: a key, a few certificates, names.
MAX_DEVICE_FILE_BYTES: Final = 256 * KIB

# Codes. Long enough to walk to the other machine, short enough that nobody finds an old one on a note.
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

# Ended records are kept for operators to see. The journal keeps the rest.
MAX_ENDED_CODES: Final = 64
MAX_ENDED_PAIRINGS: Final = 128
MAX_FINISHED_REQUESTS: Final = 256
# Devices of one daemon: a thousand workers, each with its proxy, and as many others. The state file is rewritten whole
# with every change, which at this size takes some hundredths of a second.
MAX_NODES: Final = 4_096

# Text that a device reports about itself.
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
# How long the daemon may hold one request for the decision, and how often it reads the state meanwhile: another process
# may make the decision.
MAX_PAIRING_WAIT_MS: Final = 60_000
PAIRING_LOOK_SECONDS: Final = 1.0

# The bootstrap listener, which any machine on the network may reach.
MAX_PAIRING_CONNECTIONS: Final = 128
MAX_PAIRING_CONNECTIONS_PER_ADDRESS: Final = 16
MAX_PAIRING_HEAD_BYTES: Final = 8 * KIB
# From the connection, or the end of the answer before, to the end of a request.
PAIRING_REQUEST_SECONDS: Final = 15.0
PAIRING_HANDSHAKE_SECONDS: Final = 10.0
# A device's side: how long an answer may take beyond the requested wait, and how large it may be.
PAIRING_ANSWER_SECONDS: Final = 20.0
MAX_PAIRING_ANSWER_BYTES: Final = 64 * KIB

# The protocol between devices and the daemon.
PROTOCOL_VERSION: Final = 1
# The key of our error code in the trailing metadata of a refusal.
CODE_KEY: Final = "palyra-code"

# The daemon notices within a minute that a device is gone. A heartbeat has a few dozen bytes.
DEFAULT_HEARTBEAT_SECONDS: Final = 15.0
# Three heartbeats may be lost before a device counts as gone.
DEFAULT_HEARTBEAT_TIMEOUT_SECONDS: Final = 45.0
MIN_HEARTBEAT_SECONDS: Final = 0.05
MAX_HEARTBEAT_SECONDS: Final = 3600.0

# The report of each capability, which people and policies read and which is stored for every device.
MAX_CAPABILITY_NAME_CHARS: Final = 64
MAX_DESCRIPTION_CHARS: Final = 1024
MAX_SCHEMA_BYTES: Final = 16 * KIB
# All capabilities of one device together, as they are stored.
MAX_INVENTORY_BYTES: Final = 256 * KIB

# An input fits into a call's arguments, an output into a call's result.
MAX_INPUT_BYTES: Final = MAX_TOOL_INPUT_BYTES
DEFAULT_MAX_RESULT_BYTES: Final = 256 * KIB
MIN_RESULT_BYTES: Final = 1 * KIB
MAX_RESULT_BYTES: Final = MAX_TOOL_OUTPUT_BYTES - 4 * KIB
MAX_FAILURE_CODE_CHARS: Final = 64
MAX_FAILURE_MESSAGE_CHARS: Final = 1024
MAX_REASON_CHARS: Final = 256

# Open requests of one device, queued or sent: a slow device must not fill the daemon's memory.
MAX_OPEN_REQUESTS_PER_DEVICE: Final = 64
# Inputs of all open requests: they are kept so that a daemon that comes back can still send them.
MAX_OPEN_INPUT_BYTES: Final = 4 * MIB
# Calls that run, or wait for a person, on behalf of one device.
MAX_EXECUTIONS_PER_DEVICE: Final = 8
# Requests that a device may name as still open when it comes back: more than it could have received.
MAX_OPEN_REQUEST_IDS: Final = 4 * MAX_OPEN_REQUESTS_PER_DEVICE
# Commands that wait for one stream: dispatches, cancels and others for all its open requests.
MAX_WAITING_COMMANDS: Final = 8 * MAX_OPEN_REQUESTS_PER_DEVICE

# Messages on the wire: larger than the largest result, so that a result is refused with its own code and not by gRPC.
MAX_MESSAGE_BYTES: Final = 2 * MIB
MAX_STREAMS_PER_CONNECTION: Final = 32
# The size of TLS records to a device. Each connection keeps a buffer for one: with gRPC's 16 KiB an idle connection
# takes 7 KiB more memory, and files arrive no faster.
TLS_RECORD_BYTES: Final = 1 * KIB
# An idle connection gets a ping after this long, and is cut without an answer.
KEEPALIVE_MS: Final = 20_000
KEEPALIVE_TIMEOUT_MS: Final = 20_000
# A connection without any call. An honest device has one only while it changes connections.
IDLE_CONNECTION_MS: Final = 120_000
# Pings from a device: more often is abuse, and gRPC ends the connection.
SHORTEST_PING_MS: Final = 5_000
HANDSHAKE_TIMEOUT_MS: Final = 10_000
# Connections at once, unauthenticated ones included: four for each possible device. It is at most half of the
# process's descriptors: the rest is for other uses.
MAX_CONNECTIONS: Final = 16_384
DESCRIPTOR_SHARE: Final = 2
# Headers of a call; ours have none of their own.
MAX_METADATA_BYTES: Final = 8 * KIB
# Streams get this long to receive the daemon's goodbye.
GOODBYE_SECONDS: Final = 1.0

# Refusals of one kind by one certificate are always counted, but recorded only this often, so that a revoked device
# that tries endlessly does not fill the journal. At most this many kinds are tracked.
REFUSALS_RECORDED_EVERY_SECONDS: Final = 60.0
MAX_REFUSAL_KINDS: Final = 1024
