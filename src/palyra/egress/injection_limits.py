"""Bounds of credential injection, each with its reason."""

# A shorter secret cannot be told from ordinary text in a response, so it is not injected at all.
MIN_SECRET_BYTES = 6
# Spellings shorter than this would blot out innocent text.
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
# A client that says nothing between two requests is let go.
KEEP_ALIVE_SECONDS = 60.0
# Time for a TLS handshake on either side.
TLS_HANDSHAKE_SECONDS = 10.0
