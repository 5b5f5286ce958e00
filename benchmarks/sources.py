"""The benchmarks of a checkout: those of this folder, and those of tests/perf, which use what tests share."""

import pkgutil
import re
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import bars
from benchmarks.bar import Bar

ROOT: Final = Path(__file__).resolve().parents[1]
_SUFFIX: Final = "_bench"
_BAR = re.compile(r"\bbars\.([A-Z][A-Z_]+)\b")


class Source(msgspec.Struct, frozen=True):
    """A module whose function ``run`` returns rows. ``path`` has to be on the import path for it."""

    name: str
    module: str
    file: Path
    path: Path = ROOT

    def bars(self) -> tuple[Bar, ...]:
        """Return the bars that the module names: its rows are judged by them."""
        named = _BAR.findall(self.file.read_text(encoding="utf-8"))
        return tuple(getattr(bars, name) for name in dict.fromkeys(named))


def find_sources() -> list[Source]:
    found = []
    for folder in (ROOT / "benchmarks", ROOT / "tests" / "perf"):
        for _, name, _ in pkgutil.iter_modules([str(folder)]):
            if name.endswith(_SUFFIX):
                file = folder / f"{name}.py"
                found.append(Source(name.removesuffix(_SUFFIX), f"{folder.name}.{name}", file, folder.parent))
    return sorted(found, key=lambda source: source.name)
