"""How much of the processor time that this machine wanted its host gave to others.

A virtual machine cannot see what slows it down, but for this: while it is stolen from, every figure is too large.
"""

from pathlib import Path
from typing import Final

import msgspec

# Of user, nice, system, idle, iowait, irq, softirq and steal, in this order in the file's first line.
_WANTED: Final = (0, 1, 2, 5, 6, 7)
_STOLEN: Final = 7
# Below this share the figures hardly change.
NOTEWORTHY: Final = 0.05


class ProcessorTime(msgspec.Struct, frozen=True):
    """In the kernel's ticks since it began."""

    wanted: int
    stolen: int

    def stolen_since(self, before: "ProcessorTime") -> float:
        """Return the stolen share of the processor time that was wanted since then."""
        wanted = self.wanted - before.wanted
        return (self.stolen - before.stolen) / wanted if wanted > 0 else 0.0


def processor_time(file: Path = Path("/proc/stat")) -> ProcessorTime:
    """Nothing was stolen where the kernel does not tell."""
    try:
        ticks = [int(word) for word in file.read_text(encoding="ascii").partition("\n")[0].split()[1:]]
        return ProcessorTime(sum(ticks[place] for place in _WANTED), ticks[_STOLEN])
    except (OSError, ValueError, IndexError):
        return ProcessorTime(0, 0)
