"""The console's own bounds, each with its reason."""

from palyra.clock import MS_PER_SECOND

# A person who went for lunch is asked for the token again.
SESSION_IDLE_MS = 30 * 60 * MS_PER_SECOND
# A login ends after a day's work, even if a tab refreshes itself all the time.
SESSION_LIFE_MS = 12 * 3600 * MS_PER_SECOND
# The age of the note of a session's last use: a shorter one makes every request a write.
SESSION_NOTE_MS = 60 * MS_PER_SECOND
SESSION_SECRET_BYTES = 32
# Browsers and tabs of all operators of one daemon; past it the oldest session ends.
MAX_SESSIONS = 256

# Wrong tokens in a minute, for one token id and for all. Past them the answer says so.
MAX_WRONG_LOGINS_PER_TOKEN = 5
MAX_WRONG_LOGINS = 60
LOGIN_WINDOW_SECONDS = 60.0

# A repeated write is recognised for this long.
IDEMPOTENCY_MS = 24 * 3600 * MS_PER_SECOND
MAX_IDEMPOTENCY_KEY_CHARS = 128
# Outdated keys that one new key removes: the table shrinks faster than it grows.
KEYS_REMOVED_AT_ONCE = 8

# Pages that listen at once; each holds a connection and a queue of events.
MAX_LISTENERS = 64
KEEP_ALIVE_SECONDS = 15.0

# Entries about requests of other sites: enough to see that it happens.
FORGERIES_RECORDED_EVERY_SECONDS = 60.0

# Rows of one page of a list; the rest is reached by its cursor.
PAGE_ROWS = 50
# Rows that one search reads before it answers with its matches and a cursor.
SEARCH_ROWS = 20_000
# Calls carry their output and attestation, so a search reads fewer of them.
SEARCH_CALLS = 4_000
MAX_SEARCH_CHARS = 200
# Characters of one value shown on a page; the whole is a download or a command away.
MAX_SHOWN_CHARS = 20_000
MAX_REASON_CHARS = 1024
