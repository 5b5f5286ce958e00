"""What the writer's thread takes out of its queue for one commit: all that waits there, up to a bound."""

import queue

from palyra.journal.unit import Unit

# One group's units: enough for every caller the daemon admits, small enough that the last one's wait stays short.
MAX_GROUP_UNITS = 512


# None is the end: nothing comes after it.
Waiting = queue.SimpleQueue[Unit | None]


def gathered(waiting: Waiting, timeout: float | None) -> tuple[list[Unit], bool, bool]:
    """Waits for the first, and takes what is there by then; whether to go on after it; and whether to seal: because
    the time has come, or because this is the end."""
    units: list[Unit] = []
    try:
        unit = waiting.get(timeout=timeout)
    except queue.Empty:
        return units, True, True
    try:
        while unit is not None:
            units.append(unit)
            if len(units) == MAX_GROUP_UNITS:
                return units, True, False
            unit = waiting.get_nowait()
    except queue.Empty:
        return units, True, False
    return units, False, True
