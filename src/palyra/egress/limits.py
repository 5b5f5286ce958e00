"""Bounds of egress: judge, resolver, protocol machines, proxy and HTTP client, each with its reason."""

from typing import Final

import msgspec

from palyra.limits import KIB, MIB

# A shorter secret also occurs by chance in ordinary responses, so it is not injected at all.
MIN_SECRET_BYTES = 6
# Shorter encodings would blot out innocent text.
MIN_SCANNED_BYTES = 6
# A header value that servers still accept; a larger secret is no header.
MAX_SECRET_BYTES = 8 * 1024
# Certificates of one run live as long as any run can.
CERTIFICATE_DAYS = 2
# Clocks inside and outside may differ by this much.
CERTIFICATE_BACKDATE_MINUTES = 60
# Hosts with a binding in one run; each has one certificate.
MAX_BOUND_HOSTS = 256
# Read at most this much from a side at once.
CHUNK_BYTES = 256 * 1024
# A connection is closed when its client is silent this long between two requests.
KEEP_ALIVE_SECONDS = 60.0
# Time for a TLS handshake on either side.
TLS_HANDSHAKE_SECONDS = 10.0


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

# No honest name has more addresses than this; each one is judged.
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


# What a stranger may make the protocol machines hold or parse.

# HTTP heads. The head of a browser with many cookies has a few KiB; servers of note stop at 8 to 16.
MAX_HEAD_BYTES: Final = 32 * KIB
MAX_HEADERS: Final = 128
# No server of note takes a longer request target.
MAX_TARGET_BYTES: Final = 8 * KIB
# The longest method in use is BASELINE-CONTROL, with 16 letters.
MAX_METHOD_BYTES: Final = 24
# Fifteen digits stay exact in every integer and in a double: no two parsers read another length.
MAX_CONTENT_LENGTH_DIGITS: Final = 15
# Answers before the answer (100, 103): a server that sends more is stalling.
MAX_INTERIM_RESPONSES: Final = 8
# Clients write Connection in a handful of ways; strangers' ways push each other out.
REMEMBERED_OPTIONS: Final = 64

# Chunked bodies. Eight digits, and a value that fits a signed 32-bit integer, overflow nobody.
MAX_CHUNK_SIZE_DIGITS: Final = 8
MAX_CHUNK_BYTES: Final = 2**31 - 1
# Extensions mean nothing to anybody we know; their only use is to be read differently. A size line has both.
MAX_CHUNK_LINE_BYTES: Final = 128
MAX_TRAILER_BYTES: Final = 8 * KIB

# Bytes that a client may send before an answer: its next requests, the first bytes of a tunnel. The proxy stops
# reading before an answer, so honest traffic stays far below.
MAX_EARLY_BYTES: Final = 256 * KIB

# A ClientHello with post-quantum shares and an encrypted inner hello has 2 to 4 KiB; a record holds 16.
MAX_CLIENT_HELLO_BYTES: Final = 16 * KIB
MAX_RECORD_BYTES: Final = 16 * KIB
# Programs that split their hello make two or three records of it; one byte each is a game.
MAX_HELLO_RECORDS: Final = 64

# A first line is judged by its end, so that an invented method is still seen as HTTP; one longer than this is HTTP.
MAX_FIRST_LINE_BYTES: Final = 8 * KIB

# One question and its EDNS padding.
MAX_DNS_QUERY_BYTES: Final = 1 * KIB
# The address of a name stays the same for the whole call.
DNS_TTL_SECONDS: Final = 60
# What we tell a client that speaks EDNS; our answers are far smaller.
DNS_UDP_BYTES: Final = 1_232
# Names of one sandbox, wildcards included. A program that looks up more is not looking for hosts.
MAX_SYNTHETIC_NAMES: Final = 4_096


class ProxyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one proxy process, which the operator may change."""

    # Every tunnel holds two descriptors; beyond this the tunnel that was silent longest makes room.
    max_tunnels: int = 12_000
    # From the first byte of a request, a greeting or a TLS hello to its last: honest clients need one round trip.
    handshake_seconds: float = 10.0
    # A tunnel on which nothing moved this long is cut; long polls and idle pools live below it.
    idle_seconds: float = 300.0
    # One attempt at one address: a host that drops packets must not hold the caller for the kernel's two minutes.
    connect_seconds: float = 10.0
    # A tunnel this long silent may be taken to make room for a new one when the proxy is full.
    spare_after_seconds: float = 5.0
    # How often deadlines are looked at: one walk over all tunnels costs less than a timer for each.
    sweep_seconds: float = 0.5


# One read while a handshake goes on: a TLS hello with a post-quantum key share fits.
HANDSHAKE_READ_BYTES: Final = 16 * KIB
# One read of bytes that are only passed on; it lives in one buffer of the loop, not in one per tunnel.
RELAY_READ_BYTES: Final = 256 * KIB
# Copies of a body inside an HTTP conversation, which Python has to look at.
BODY_READ_BYTES: Final = 128 * KIB
# Rounds of one flow before other tunnels get their turn.
ROUNDS_PER_TURN: Final = 4
# Sockets looked at before the loop does something else.
EVENTS_PER_TURN: Final = 256
# Connections taken from one listener before the loop serves the others.
ACCEPTS_PER_TURN: Final = 32
# A connection to the proxy port waits in the kernel for its first byte this long before the proxy sees it.
DEFER_ACCEPT_SECONDS: Final = 5
# Between programs of one machine nothing is congested. The default of some machines paces what it sends, and halves
# what a loopback can carry; this one does not, and every Linux has it and lets everybody use it.
LOOPBACK_CONGESTION: Final = b"reno"
# When the process has no descriptor left a listener rests this long instead of spinning.
ACCEPT_PAUSE_SECONDS: Final = 0.1
# Descriptors for everything but tunnels: listeners, files, the resolver's sockets.
SPARE_DESCRIPTORS: Final = 512
# Descriptors requested at the start: two for each tunnel and the spare ones.
WANTED_DESCRIPTORS: Final = 2 * 12_000 + SPARE_DESCRIPTORS
# Addresses of one name tried in turn before the connection fails.
MAX_DIALLED_ADDRESSES: Final = 4
# Refusals that a usage report carries; the rest are counted.
MAX_REFUSALS_KEPT: Final = 64
# Refusals of one grant that are reported; a program that asks for ever fills no journal.
MAX_REFUSALS_REPORTED: Final = 1_000
# Bytes and time that a refused client gets to read why, while its own last words are thrown away.
FAREWELL_BYTES: Final = 64 * KIB
FAREWELL_SECONDS: Final = 1.0
# Datagrams answered before the loop serves others.
DATAGRAMS_PER_TURN: Final = 32
# The head of an upstream proxy's answer.
MAX_UPSTREAM_HEAD_BYTES: Final = 16 * KIB
# Requests on one kept-alive connection: a bound on what one connection may do, far above a busy client.
MAX_REQUESTS_PER_CONNECTION: Final = 10_000


MAX_REQUEST_HEADERS = 64
# What common servers still take as one header.
MAX_HEADER_VALUE_CHARS = 8 * KIB
# All request headers together, after secrets were filled in: the smallest total that common servers refuse is above it.
MAX_REQUEST_HEAD_BYTES = 32 * KIB

# The redirects of one call; a longer chain has no honest use. Each hop is judged and dialled again.
MAX_REDIRECTS = 5

# One page's text; an agent asks for more when it needs more.
DEFAULT_MAX_BYTES = 256 * KIB
MAX_MAX_BYTES = 8 * MIB
# Read past the limit so that a secret across the cut is still seen whole, and taken out, before the cut is made.
SCAN_AHEAD_BYTES = 16 * KIB
# Compressed content may grow this much; text rarely passes 30, and deflate itself ends near 1,000.
MAX_EXPANSION = 200
# Below this size growth is not looked at: a small file of one repeated line is no attack.
EXPANSION_LOOKED_AT_BYTES = 256 * KIB
# Members of one gzip stream; honest ones have one.
MAX_GZIP_MEMBERS = 64
# One read from the connection.
FETCH_CHUNK_BYTES = 64 * KIB
# How much of the beginning is looked at for a charset or for bytes that no text has.
SNIFF_BYTES = 1 * KIB

# What of the response is shown beside its content.
MAX_SHOWN_HEADERS = 32
MAX_SHOWN_HEADER_CHARS = 1 * KIB
MAX_SHOWN_URL_CHARS = 2 * KIB

# Time grows with length and with the number of tags; together these keep the worst page near a second.
MAX_HTML_CHARS = 1 * MIB
MAX_HTML_TOKENS = 200_000
# Elements inside elements that still change how text is laid out (lists, quotes).
MAX_LAYOUT_DEPTH = 32
# Attributes of one element, and characters of the name of each: more than real pages have.
MAX_ATTRIBUTES = 64
MAX_ATTRIBUTE_NAME_CHARS = 64
MAX_ATTRIBUTE_CHARS = 4 * KIB
MAX_TITLE_CHARS = 512
# Cells of one row and rows of one table before the rest is set as plain lines.
MAX_TABLE_COLUMNS = 32

# Threads that turn bytes into text; the work is short and holds the interpreter's lock.
RENDER_THREADS = 2

# Bytes on the wire beside content and request, for each hop: a TLS handshake with a long chain, and two heads.
HOP_OVERHEAD_BYTES = 64 * KIB
