"""Python itself in a daemon: its collector and its lock, set for a process that serves for months.

By default the collector looks through the young objects at every seven hundredth new one, and through everything each
time that a quarter was added. With a thousand connections that is a twentieth of the daemon's time, and finds next to
nothing: calls and messages end without cycles.

A thread that wants Python's lock waits five milliseconds before it asks for it. gRPC passes on each single message from
a thread of its own, and the journal's writer is one too: while the loop is busy every message waits that long, the loop
gets its messages one by one, and half of the machine stands idle (with 64 callers on 1,000 workers 486 leases a second
became 674).
"""

import gc
import sys
from typing import Final

# New objects between two looks at the young ones: a few hundred calls' worth, some megabytes.
YOUNG_OBJECTS: Final = 20_000
# How long a thread waits for another one before it asks for its turn: a few messages' worth of work.
TURN_SECONDS: Final = 0.0005


def settle_in() -> None:
    """Once, when everything is built. Nothing is collected first: that would take as long as half of the start."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    sys.setswitchinterval(TURN_SECONDS)
