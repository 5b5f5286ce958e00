"""Every bound of the egress judge and its resolver, with its reason."""

from typing import Final

from palyra.limits import KIB, MIB

# The longest name and the longest label that DNS can hold.
MAX_HOST_CHARS: Final = 253
MAX_LABEL_CHARS: Final = 63
MAX_PORT: Final = 65_535
# Beyond this no server of note takes a URL, and every parser behind us has to read it.
MAX_URL_CHARS: Final = 8 * KIB
# What a rule that names no port opens: the web, with and without TLS.
WEB_PORTS: Final = (80, 443)
# What of a stranger's text is shown in a refusal.
MAX_SHOWN_CHARS: Final = 200
# Verdicts on names and addresses are kept this often: a run talks to few hosts, an attacker to many.
REMEMBERED_VERDICTS: Final = 4_096

# What one call gets where its grant says nothing else.
DEFAULT_MAX_CALL_BYTES: Final = 64 * MIB
DEFAULT_MAX_TUNNELS: Final = 64
DEFAULT_IDLE_SECONDS: Final = 120.0
# A setting above these would only hide a mistake.
MAX_TUNNELS: Final = 4_096
MAX_IDLE_SECONDS: Final = 3_600.0
MAX_STATIC_ADDRESSES: Final = 32

# Answers of one name beyond this are no honest answer; each one is judged.
MAX_ANSWERS: Final = 64
# A lookup holds a thread until the system gives up: this many at once, the next ones wait, the rest are refused.
RESOLVER_THREADS: Final = 8
MAX_WAITING_LOOKUPS: Final = 256
# Names below one domain may have a server that never answers: they hold half of the threads and of the line at most.
LOOKUPS_OF_A_DOMAIN: Final = 4
MAX_WAITING_LOOKUPS_OF_A_DOMAIN: Final = 128
RESOLVE_TIMEOUT_SECONDS: Final = 5.0
# A machine seldom gets a new address; until this has passed an address that is new and public is not known as our own.
OWN_ADDRESSES_FRESH_SECONDS: Final = 10.0
# The file of host names is read whole.
MAX_HOSTS_FILE_BYTES: Final = 1 * MIB

# Times that one call may ask for credentials: each is an entry in the journal that must not be left out.
MAX_CREDENTIAL_USES_PER_CALL: Final = 10_000
# A header's name and a path prefix of a credential binding: far above any in use.
MAX_HEADER_NAME_CHARS: Final = 128
MAX_PATH_PREFIX_CHARS: Final = 1_024
