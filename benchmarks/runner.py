"""Runs benchmarks one after the other, each in a process of its own.

None weighs on the next, and one that fails or hangs costs only its own rows.
"""

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.bar import Judged, Row, judge_all
from benchmarks.bars import BARS
from benchmarks.chart import bar_chart
from benchmarks.curves import curves
from benchmarks.report import document, summary, table
from benchmarks.sources import ROOT, Source
from benchmarks.stolen import NOTEWORTHY, processor_time

# The longest takes two minutes on two cores. What takes five times that is stuck.
MAX_SECONDS: Final = 600
_BY_KEY = {bar.key: bar for bar in BARS}


class Ended(msgspec.Struct, frozen=True):
    """The rows of a benchmark, or its failure.

    ``stolen`` is the share of the wanted processor time that the machine's host gave to others.
    """

    source: Source
    rows: tuple[Row, ...]
    seconds: float
    failure: str = ""
    stolen: float = 0.0


class BenchResult(msgspec.Struct, frozen=True):
    """``load`` is how busy the machine was before the first of them."""

    ended: tuple[Ended, ...]
    load: float = 0.0

    @property
    def rows(self) -> list[Row]:
        return [row for each in self.ended for row in each.rows]

    def judged(self) -> list[Judged]:
        """Each bar of what was run, once."""
        wanted = {bar.key: bar for each in self.ended for bar in each.source.bars()}
        why = {bar.key: each.failure for each in self.ended if each.failure for bar in each.source.bars()}
        return judge_all([bar for bar in BARS if bar.key in wanted], self.rows, why)

    def text(self) -> str:
        seconds = sum(each.seconds for each in self.ended)
        failed = [f"failed: {each.source.name}: {each.failure}" for each in self.ended if each.failure]
        took = f"{len(self.ended)} benchmarks in {seconds / 60:.1f} minutes"
        if self.load > (os.cpu_count() or 1):
            took += (
                f"; the machine was busy with other things (load {self.load:.1f} at the start): measure again when idle"
            )
        return "\n".join([table(self.rows), "", summary(self.judged()), *failed, *self._robbed(), took])

    def _robbed(self) -> list[str]:
        return [
            f"doubtful: {each.source.name}: the host of this machine gave {each.stolen:.0%} of the processor time to"
            " others meanwhile: measure again"
            for each in self.ended
            if each.stolen >= NOTEWORTHY
        ]

    def document(self) -> dict[str, Any]:
        machine = {
            "cores": os.cpu_count(),
            "load": self.load,
            "kernel": platform.release(),
            "python": platform.python_version(),
        }
        return {
            **document(self.rows, self.judged(), machine),
            "benchmarks": [
                {
                    "name": each.source.name,
                    "seconds": round(each.seconds, 1),
                    "failure": each.failure,
                    "stolen": round(each.stolen, 3),
                }
                for each in self.ended
            ],
        }

    def write(self, folder: Path) -> list[Path]:
        """Write the table as text, JSON and a chart, and the curves of what grew."""
        folder.mkdir(parents=True, exist_ok=True)
        written = {
            "bench.txt": self.text() + "\n",
            "bench.json": json.dumps(self.document(), indent=2) + "\n",
            "bench.svg": bar_chart(self.judged()),
        }
        if series := {row["name"]: row for row in self.rows if row.get("series")}:
            written["growth.svg"] = curves(
                {f"{name} ({row['unit']})": dict(row["series"]) for name, row in series.items()}
            )
        for name, text in written.items():
            (folder / name).write_text(text, encoding="utf-8")
        return [folder / name for name in written]


def run_all(sources: list[Source], tell: Callable[[str], None], results: Path) -> BenchResult:
    """Write the results after each benchmark, so that an interrupted run keeps what it measured."""
    ended: list[Ended] = []
    load = os.getloadavg()[0]
    for number, source in enumerate(sources, 1):
        tell(f"[{number}/{len(sources)}] {source.name} …")
        one = run_one(source)
        ended.append(one)
        how = one.failure or f"{len(one.rows)} rows"
        tell(f"[{number}/{len(sources)}] {source.name}: {how}, {one.seconds:.0f} s")
        BenchResult(tuple(ended), load).write(results)
    return BenchResult(tuple(ended), load)


def run_one(source: Source, *, max_seconds: float = MAX_SECONDS) -> Ended:
    """Run one benchmark. It prints to standard error: standard output is for the table."""
    # gRPC tells of every connection that ends, and a benchmark ends a thousand at once.
    environment = {"GRPC_VERBOSITY": "ERROR", **os.environ}
    places = dict.fromkeys((str(ROOT), str(source.path), *filter(None, [environment.get("PYTHONPATH")])))
    environment["PYTHONPATH"] = os.pathsep.join(places)
    since, before = time.monotonic(), processor_time()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        words = [sys.executable, "-m", "benchmarks.child", source.module, str(file)]
        # A session of its own: all that it started ends with it.
        process = subprocess.Popen(words, env=environment, stdout=sys.stderr.fileno(), start_new_session=True)
        failure = ""
        try:
            status = process.wait(max_seconds)
            if status != 0:
                failure = f"ended with {status}; its output is above"
        except subprocess.TimeoutExpired:
            failure = f"did not end within {max_seconds:.0f} s"
        finally:
            _end(process)
        rows = json.loads(file.read_text(encoding="utf-8")) if not failure else []
    with_bars = tuple({**row, "bar": _BY_KEY.get(row["bar"])} for row in rows)
    return Ended(source, with_bars, time.monotonic() - since, failure, processor_time().stolen_since(before))


def _end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
