"""The bounds of the browser tools, besides those of a session's budget."""

from typing import Final

from palyra.limits import KIB, MIB

# Of one session: each is decided by policy for itself, and shown to who approves.
MAX_HOSTS: Final = 32
# Of one call: an agent that is wrong about a page should look at it before it goes on.
MAX_ACTIONS: Final = 20
# What an agent may put into one page with one call; it has to fit a message of the browser daemon.
MAX_UPLOADS: Final = 8
MAX_UPLOAD_BYTES: Final = 4 * MIB
MAX_TEXT_CHARS: Final = 16 * KIB
MAX_NAME_CHARS: Final = 64
MAX_REASON_CHARS: Final = 500
MAX_LOG_ENTRIES: Final = 256
# Sessions that one run may have open at once: each is a browser.
MAX_SESSIONS_PER_RUN: Final = 4
# Base64 makes four characters of three bytes; the rest of a result needs little.
RESULT_ROOM_BYTES: Final = 8 * KIB
# How often a page that goes elsewhere while it is looked at is waited for.
MOVING_PAGE_LOOKS: Final = 2
# The second try of a picture that does not fit into a result.
SMALL_PICTURE_QUALITY: Final = 50
