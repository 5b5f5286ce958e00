"""Bounds of http.fetch, each with its reason."""

from palyra.limits import KIB, MIB

# The request.
# Longer addresses are refused by most servers and are a way to send data out.
MAX_URL_CHARS = 8 * KIB
MAX_REQUEST_HEADERS = 64
MAX_HEADER_NAME_CHARS = 128
# What common servers still take as one header.
MAX_HEADER_VALUE_CHARS = 8 * KIB
# All request headers together, after secrets were filled in: the smallest total that common servers refuse is above it.
MAX_REQUEST_HEAD_BYTES = 32 * KIB

# The redirects of one call; a longer chain has no honest use and each hop is judged and dialled anew.
MAX_REDIRECTS = 5
# Informational answers (100, 103) before the real one.
MAX_INFORMATIONAL = 8
# A peer that does not finish a TLS handshake in this time will not; the call's own deadline holds too.
TLS_HANDSHAKE_SECONDS = 10.0

# The response.
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
CHUNK_BYTES = 64 * KIB
# How much of the beginning is looked at for a charset or for bytes that no text has.
SNIFF_BYTES = 1 * KIB

# What of the response is shown beside its content.
MAX_SHOWN_HEADERS = 32
MAX_SHOWN_HEADER_CHARS = 1 * KIB
MAX_SHOWN_URL_CHARS = 2 * KIB

# Readable text.
# Time grows with length and with the number of tags; together these keep the worst page near a second.
MAX_HTML_CHARS = 1 * MIB
MAX_HTML_TOKENS = 200_000
# Elements inside elements that still change how text is laid out (lists, quotes).
MAX_LAYOUT_DEPTH = 32
MAX_ATTRIBUTES = 64
MAX_ATTRIBUTE_CHARS = 4 * KIB
MAX_TITLE_CHARS = 512
# Cells of one row and rows of one table before the rest is set as plain lines.
MAX_TABLE_COLUMNS = 32

# Threads that turn bytes into text; the work is short and holds the interpreter's lock.
RENDER_THREADS = 2

# What the wire carries beside content and request, for each hop: a TLS handshake with a long chain, and two heads.
HOP_OVERHEAD_BYTES = 64 * KIB
