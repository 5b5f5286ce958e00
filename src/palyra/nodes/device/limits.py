"""The bounds of what every kind of paired device does: pair, keep its pairing, come back."""

from typing import Final

from palyra.limits import KIB

# Reconnecting: the first try comes soon, later ones spare a daemon that is down, and no two devices keep step.
FIRST_DELAY_MS: Final = 500
LONGEST_DELAY_MS: Final = 30_000

# One look for the decision of a person; the next follows at once.
DECISION_WAIT_MS: Final = 25_000
# Addresses of one daemon that are tried in turn.
MAX_SERVERS: Final = 8

# The longest file of the device's folder: a key, a few certificates, names.
MAX_DEVICE_FILE_BYTES: Final = 256 * KIB
