"""The summary, for people and for programs."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from soak.faults import Faults
from soak.judge import Record, Verdict, render
from soak.observations import OK, Observations
from soak.operator import Operator
from soak.pace import Pace
from soak.settings import Plan
from soak.watch import Sample

_CURVE_POINTS = 24
_BARS = " ▁▂▃▄▅▆▇█"


class Summary:
    def __init__(self, plan: Plan, pace: Pace, answers: Observations, faults: Faults, operator: Operator) -> None:
        self.plan = plan
        self.pace = pace
        self.answers = answers
        self.faults = faults
        self.operator = operator
        self.verdicts: list[Verdict] = []
        self.samples: list[Sample] = []
        self.record: Record | None = None
        self.log: Counter[str] = Counter()
        # Seconds that the load lasted.
        self.loaded = 0.0

    @property
    def passed(self) -> bool:
        return bool(self.verdicts) and all(verdict.holds for verdict in self.verdicts)

    def document(self) -> dict[str, Any]:
        return {
            "format": "palyra-soak/1",
            "passed": self.passed,
            "plan": msgspec.to_builtins(self.plan),
            "load_seconds": round(self.loaded, 1),
            "awake_seconds": round(self.pace.awake, 1),
            "freezes": [{"at": round(at, 1), "seconds": round(seconds, 1)} for at, seconds in self.pace.freezes],
            "verdicts": [{**msgspec.to_builtins(one), "holds": one.holds} for one in self.verdicts],
            "outcomes": {kind: dict(codes.most_common()) for kind, codes in sorted(self.answers.outcomes.items())},
            "codes": self.answers.messages,
            "latency_ms": {kind: _latency(values) for kind, values in sorted(self.answers.latencies.items())},
            "faults": self.faults.counts(),
            "each_fault": [msgspec.to_builtins(one) for one in self.faults.done],
            "operator": dict(self.operator.did),
            "journal": {} if self.record is None else dict(self.record.kinds.most_common()),
            "daemon_log": dict(self.log.most_common(50)),
            "samples": [msgspec.to_builtins(one) for one in self.samples],
        }

    def text(self) -> str:
        lines = [
            f"SOAK {'PASSED' if self.passed else 'FAILED'}: {self.loaded / 60:.1f} minutes of load,"
            f" seed {self.plan.seed}, {self.plan.callers} callers, {self.pace.awake:.0f} s awake,"
            f" {len(self.pace.freezes)} freezes of the machine ({sum(long for _, long in self.pace.freezes):.0f} s)",
            "",
            *[render(verdict) for verdict in self.verdicts],
            "",
            f"{'kind':<18} {'ok':>7} {'other':>7} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8}  other outcomes",
        ]
        for kind, codes in sorted(self.answers.outcomes.items()):
            took = _latency(self.answers.latencies.get(kind, []))
            others = ", ".join(f"{count} {code}" for code, count in codes.most_common() if code != OK)
            lines.append(
                f"{kind:<18} {codes[OK]:>7} {codes.total() - codes[OK]:>7} {took['p50']:>8} {took['p99']:>8}"
                f" {took['max']:>8}  {others}"
            )
        lines += ["", f"{'fault':<20} {'times':>5}  slowest recovery"]
        for kind, counted in self.faults.counts().items():
            lines.append(f"{kind:<20} {counted['count']:>5}  {counted['slowest_recovery']} s")
        lines += [
            "",
            "the operator: " + ", ".join(f"{count} {what}" for what, count in self.operator.did.most_common()),
        ]
        if self.record is not None:
            lines.append(f"the journal: {self.record.kinds.total()} events of {len(self.record.kinds)} kinds")
        lines += ["", *self._curves()]
        if self.log:
            lines += ["", "the daemon's log:", *[f"{count:>6}  {line}" for line, count in self.log.most_common(20)]]
        return "\n".join(lines) + "\n"

    def _curves(self) -> list[str]:
        lines = []
        for name in ("daemon_bytes", "browserd_bytes", "worker_bytes", "descriptors", "processes"):
            values = [getattr(sample, name) for sample in self.samples if getattr(sample, name)]
            if not values:
                continue
            unit = 2**20 if name.endswith("bytes") else 1
            step = max(1, len(values) // _CURVE_POINTS)
            points = [max(values[at : at + step]) for at in range(0, len(values), step)]
            top = max(points)
            curve = "".join(_BARS[min(8, round(8 * point / top))] for point in points)
            first, last, most = (
                f"{value / unit:.0f}{' MiB' if unit > 1 else ''}" for value in (points[0], points[-1], top)
            )
            lines.append(f"{name:<16} {curve}  first {first}, last {last}, most {most}")
        return lines

    def write(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "soak.json").write_text(json.dumps(self.document(), indent=1) + "\n")
        (folder / "soak.txt").write_text(self.text())


def _latency(values: list[float]) -> dict[str, float]:
    if not values:
        return {"p50": 0, "p99": 0, "max": 0}
    ordered = sorted(values)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000, 1)

    return {"p50": at(0.5), "p99": at(0.99), "max": at(1.0)}
