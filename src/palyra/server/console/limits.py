"""The console's own bounds, each with its reason."""

from palyra.clock import MS_PER_SECOND

# A person who went for lunch is asked for the token again.
SESSION_IDLE_MS = 30 * 60 * MS_PER_SECOND
# However busy a tab keeps itself, a day's work is the most that one login is good for.
SESSION_LIFE_MS = 12 * 3600 * MS_PER_SECOND
# How old the note of a session's last use may be: every request would otherwise be a write.
SESSION_NOTE_MS = 60 * MS_PER_SECOND
SESSION_SECRET_BYTES = 32
# Browsers and tabs of all operators of one daemon; past it the oldest session ends.
MAX_SESSIONS = 256

# Wrong tokens in a minute that name one token, and that name any: then the next one is not even looked at.
MAX_WRONG_LOGINS_PER_TOKEN = 5
MAX_WRONG_LOGINS = 60
LOGIN_WINDOW_SECONDS = 60.0

# A repeated write is recognised for this long.
IDEMPOTENCY_MS = 24 * 3600 * MS_PER_SECOND
MAX_IDEMPOTENCY_KEY_CHARS = 128
# Outdated keys removed along with one new one: the table shrinks faster than it grows.
KEYS_REMOVED_AT_ONCE = 8

# Pages that listen at once; each holds a connection and a queue of news.
MAX_LISTENERS = 64
KEEP_ALIVE_SECONDS = 15.0

# Entries about requests of other sites: enough to see that it happens.
FORGERIES_RECORDED_EVERY_SECONDS = 60.0

# Rows of one page of a list; the rest is reached by its cursor.
PAGE_ROWS = 50
# Rows that one search looks at before it answers with what it has and where to go on.
SEARCH_ROWS = 20_000
# Calls carry their output and attestation: fewer of them are as much to read.
SEARCH_CALLS = 4_000
MAX_SEARCH_CHARS = 200
# Characters of one value shown on a page; the whole is a download or a command away.
MAX_SHOWN_CHARS = 20_000
MAX_REASON_CHARS = 1024
