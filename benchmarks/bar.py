"""A bar: what a figure of the benchmark has to reach, and how a row of the table is judged by it."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

Row = dict[str, Any]


class Kind(StrEnum):
    """Which figure of a row the number is about, and on which side of it the figure has to be."""

    RATIO_AT_MOST = "ratio at most"
    RATIO_AT_LEAST = "ratio at least"
    AT_MOST = "at most"
    AT_LEAST = "at least"
    MORE_AT_MOST = "more than the peer by at most"


class Verdict(StrEnum):
    MET = "met"
    MISSED = "missed"
    NOT_MEASURED = "not measured"


class Bar(msgspec.Struct, frozen=True):
    """``key`` is its name in rows and files; ``what`` and ``against`` are the words of the pages."""

    key: str
    what: str
    against: str
    kind: Kind
    number: float
    unit: str = "x"
    shortfall: str = ""

    @property
    def words(self) -> str:
        """As a table shows it: ``at most 1.15 x``, ``at most 5 ms more``."""
        side = "at least" if self.kind in (Kind.RATIO_AT_LEAST, Kind.AT_LEAST) else "at most"
        return f"{side} {self.number:,g} {self.unit}{' more' if self.kind is Kind.MORE_AT_MOST else ''}"

    def reached(self, row: Row) -> float | None:
        """Return the figure that the bar is about; None if it, or the peer's, is missing."""
        ours, theirs, ratio = row["ours_p50"], row["peer_p50"], row["ratio"]
        match self.kind:
            case Kind.RATIO_AT_MOST | Kind.RATIO_AT_LEAST:
                return None if ratio is None else float(ratio)
            case Kind.MORE_AT_MOST:
                return None if ours is None or theirs is None else float(ours - theirs)
            case _:
                return None if ours is None else float(ours)

    def share(self, row: Row) -> float | None:
        """How much of the bar is used up: 1 is exactly the bar, and more than 1 is a miss."""
        reached = self.reached(row)
        if reached is None:
            return None
        if self.kind in (Kind.RATIO_AT_LEAST, Kind.AT_LEAST):
            return self.number / reached if reached > 0 else float("inf")
        return reached / self.number

    def judge(self, row: Row) -> Verdict:
        share = self.share(row)
        if share is None:
            return Verdict.NOT_MEASURED
        return Verdict.MET if share <= 1 else Verdict.MISSED


class Judged(msgspec.Struct, frozen=True):
    """A bar after a run, by the worst of its rows; ``why`` says what kept it from being measured."""

    bar: Bar
    verdict: Verdict
    row: Row | None = None
    why: str = ""

    @property
    def reached(self) -> float | None:
        return None if self.row is None else self.bar.reached(self.row)


def judge_all(wanted: Iterable[Bar], rows: Iterable[Row], why: Mapping[str, str]) -> list[Judged]:
    """Every wanted bar, whether a row was about it or not. ``why`` knows, by a bar's key, what failed."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if isinstance(row["bar"], Bar):
            found.setdefault(row["bar"].key, []).append(row)
    return [_judged(bar, found.get(bar.key, []), why.get(bar.key, "no row was about it")) for bar in wanted]


def _judged(bar: Bar, rows: list[Row], why: str) -> Judged:
    if not rows:
        return Judged(bar, Verdict.NOT_MEASURED, why=why)
    # A row without a figure is worse than any: what was not measured was not met.
    worst = max(rows, key=lambda row: float("inf") if (share := bar.share(row)) is None else share)
    verdict = bar.judge(worst)
    return Judged(bar, verdict, worst, why=worst["peer"] if verdict is Verdict.NOT_MEASURED else "")
