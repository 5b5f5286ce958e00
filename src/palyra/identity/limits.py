"""Bounds of device identity, each with its reason."""

from typing import Final

from palyra.clock import MS_PER_SECOND
from palyra.limits import KIB

# A P-256 request without anything else has about 200 bytes; a long subject, which is ignored, may still fit.
MAX_CSR_BYTES: Final = 4 * KIB
# A name, an address or a wildcard-free DNS name that a server certificate vouches for.
MAX_SERVER_NAMES: Final = 32
MAX_SERVER_NAME_CHARS: Final = 253

# A day: short enough that a stolen certificate ends by itself, long enough that a laptop sleeps through a night.
DEFAULT_CERTIFICATE_SECONDS: Final = 86_400
# Below this the renewals themselves would be most of the traffic.
MIN_CERTIFICATE_SECONDS: Final = 10
MAX_CERTIFICATE_SECONDS: Final = 90 * 86_400
# How far a device's clock may be behind ours and still find its new certificate valid.
CLOCK_SKEW_MS: Final = 5 * 60 * MS_PER_SECOND
# An authority is replaced, with overlap, when two thirds of this are over.
AUTHORITY_LIFE_MS: Final = 5 * 365 * 86_400 * MS_PER_SECOND
# Authorities below one another while devices still know only the oldest of them: the newest, signed by the one before.
AUTHORITY_PATH_LENGTH: Final = 1

# What may be renewed in one life of a certificate: an honest device needs two.
MAX_LIVE_CERTIFICATES: Final = 8
# Ten times the fleet that one daemon is built for.
MAX_DEVICES: Final = 10_000
MAX_REASON_CHARS: Final = 256

# Another process may change the authorities while we load a key; more turns than this means that something is wrong.
MAX_KEY_TURNS: Final = 8
# What another process changed (a revocation above all) takes effect here within this time at the latest.
RECHECK_SECONDS: Final = 0.25
# Streams that are silent are cut by the tending, which looks this often.
TEND_SECONDS: Final = 0.5

NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
