"""Every bound of the egress machines, with its reason: what a stranger may make us hold or parse."""

from typing import Final

from palyra.limits import KIB

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

# What a client may send before it may: the next requests, the first bytes of a tunnel. A proxy that stops reading
# when told so never comes near it.
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
