"""The bounds of pairing and of what is kept about devices, each with its reason."""

from typing import Final

from palyra.limits import KIB

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
