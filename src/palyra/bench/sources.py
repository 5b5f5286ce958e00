"""Which benchmarks there are: those that need nothing but the package, and in a checkout those of tests/perf."""

import pkgutil
import re
from pathlib import Path
from typing import Final

import msgspec

import palyra
from palyra.bench import bars
from palyra.bench.bar import Bar
from palyra.errors import InvalidInput

_SUFFIX: Final = "_bench"
_BAR = re.compile(r"\bbars\.([A-Z][A-Z_]+)\b")


class UnknownBenchmark(InvalidInput):
    code = "bench.unknown"
    hint = "`palyra bench --list` prints the names"


class Source(msgspec.Struct, frozen=True):
    """A module with a function ``run`` that answers with rows; ``path`` is what has to be importable for it."""

    name: str
    module: str
    file: Path
    path: Path | None = None

    def bars(self) -> tuple[Bar, ...]:
        """The bars that its rows are judged by: those that it names."""
        named = _BAR.findall(self.file.read_text(encoding="utf-8"))
        return tuple(getattr(bars, name) for name in dict.fromkeys(named))


def checkout() -> Path | None:
    """The folder of the tests, where this package is run from a checkout."""
    tests = Path(palyra.__file__).resolve().parents[2] / "tests"
    return tests if (tests / "perf" / "__main__.py").is_file() else None


def sources() -> list[Source]:
    own = Path(__file__).resolve().parent
    found = [Source(name.removesuffix(_SUFFIX), f"palyra.bench.{name}", own / f"{name}.py") for name in _modules(own)]
    if (tests := checkout()) is not None:
        found += [
            Source(name.removesuffix(_SUFFIX), f"perf.{name}", tests / "perf" / f"{name}.py", tests)
            for name in _modules(tests / "perf")
        ]
    return sorted(found, key=lambda source: source.name)


def _modules(folder: Path) -> list[str]:
    return [name for _, name, _ in pkgutil.iter_modules([str(folder)]) if name.endswith(_SUFFIX)]


def chosen(names: tuple[str, ...]) -> list[Source]:
    """The benchmarks of these names; all of them without any."""
    every = {source.name: source for source in sources()}
    for name in names:
        if name not in every:
            raise UnknownBenchmark(f"there is no benchmark {name}; there are {', '.join(every)}")
    return [every[name] for name in names] if names else list(every.values())
