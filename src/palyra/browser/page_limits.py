"""Every bound of looking at a page and acting in it."""

from typing import Final

from palyra.limits import KIB

# What one look reads of a page, whatever the page has: a walk of this many rows takes some hundred milliseconds.
MAX_ROWS: Final = 12_000
MAX_WALK_MS: Final = 2_000
# A name is cut in the text to so many characters. The page's script gives more, so that a secret is found whole before.
MAX_SHOWN_NAME: Final = 160
MAX_SHOWN_TEXT: Final = 400
# What a tree gets if nobody says how much: some four thousand tokens.
DEFAULT_TREE_BYTES: Final = 16 * KIB
# Texts are read beyond what is shown, for the same reason.
READ_BEYOND_CHARS: Final = 4 * KIB
# Frames that one look goes into; a page may have made thousands.
MAX_FRAMES: Final = 64
# Refs that one tab remembers; the oldest go first.
MAX_REFS: Final = 20_000
# Elements that an error names.
MAX_NAMED: Final = 5
# A name in an error.
MAX_ERROR_NAME: Final = 60
# How long one answer of the page's script may take beyond the time that the script itself was given.
ANSWER_SECONDS: Final = 5.0
# The largest picture: Chromium's own surfaces end at 16,384.
MAX_PICTURE_PIXELS: Final = 16_384
# Files of one input, and a name among them.
MAX_UPLOADS: Final = 32
MAX_UPLOAD_NAME_BYTES: Final = 200
# Steps of a drag: a page that follows the mouse sees it pass.
DRAG_STEPS: Final = 5
# An element that was ready at the very end of its time still gets its input.
MIN_INPUT_SECONDS: Final = 2.0
