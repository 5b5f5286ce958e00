"""Bounds of the vault, each with its reason."""

from palyra.limits import KIB

# Larger than any key, certificate chain or service account file; what is bigger is a document, not a secret.
MAX_VALUE_BYTES = 64 * KIB
# A reference stands in settings, policies and header placeholders, and is read by people.
MAX_REF_CHARS = 256
MAX_KEY_CHARS = 128
# Enough to go back after a bad change; older versions are destroyed, because what is kept can leak.
MAX_VERSIONS_KEPT = 8
# Far above a team's secrets; keeps listing, rotation and the index within what one machine does in seconds.
MAX_SECRETS = 100_000
# One page of a list; the rest is reached by its cursor.
MAX_LISTED_SECRETS = 1_000

# The index's parts: each is checked whole when one of its secrets is used, so it must stay small at 100,000 secrets.
INDEX_BUCKETS = 256
# Data keys re-wrapped in one transaction: short enough that a reveal in between waits some milliseconds.
REWRAP_BATCH = 256
# Another process may change the active key while we load one; more turns than this means that something is wrong.
MAX_KEY_TURNS = 8

# AES-256 throughout.
KEY_BYTES = 32
# 96 bits, random: with one key-encryption key that is safe for 2^32 wraps, which is beyond any vault here.
NONCE_BYTES = 12
TAG_BYTES = 16

# A key file holds the active key, the one being retired, and those of other vaults of the same user.
MAX_KEYS_IN_FILE = 32
MAX_KEY_FILE_BYTES = 16 * KIB

# scrypt: 128 MiB and a few tenths of a second per guess, the strongest that an interactive start bears.
SCRYPT_N = 2**17
SCRYPT_R = 8
SCRYPT_P = 1
# Stored parameters outside these are refused: weaker ones protect nothing, stronger ones are an attack.
MIN_SCRYPT_N = 2**14
MAX_SCRYPT_N = 2**20
MAX_SCRYPT_R = 16
MAX_SCRYPT_P = 4
SALT_BYTES = 16
# A shorter passphrase is guessed offline in spite of scrypt.
MIN_PASSPHRASE_CHARS = 12
MAX_PASSPHRASE_BYTES = 4 * KIB
# The newest passphrase and the one it replaces.
MAX_PASSPHRASES = 2
