"""``python -m soak --minutes 30 --seed 1``: see the README of this folder."""

import argparse
import re
import secrets
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

from fakes.star_of_networks import enter
from soak.enclosure import Enclosure, become_orphanage
from soak.faults import Faults
from soak.judge import Record, Verdict, judge
from soak.leaks import (
    holds_no_more,
    memory_is_bounded,
    memory_of_workers_is_bounded,
    no_listener_is_left,
    nothing_is_left,
)
from soak.load import Load, warm_up
from soak.observations import Observations
from soak.operator import Operator
from soak.pace import Pace
from soak.report import Summary
from soak.settings import Plan
from soak.stack import Stack
from soak.watch import Watch
from soak.web import web_server

RESULTS = Path("soak-results")
_PROGRESS_SECONDS = 30.0
# After the last fault, for everything to work once more: workers attest themselves, a browser starts.
_RECOVERY_SECONDS = 150.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=None, help="as a failed run printed it")
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--fault", action="append", default=[], help="only this kind; repeatable")
    parser.add_argument("--no-faults", action="store_true")
    parser.add_argument("--keep", action="store_true", help="leave the state and the logs where they are")
    options = parser.parse_args()
    plan = Plan(
        minutes=options.minutes,
        seed=secrets.randbelow(1_000_000) if options.seed is None else options.seed,
        callers=options.callers,
        faults=tuple(options.fault),
        no_faults=options.no_faults,
    )
    enclosure = Enclosure(become_orphanage())
    passed = False
    try:
        summary = _soak(plan, enclosure)
        passed = summary.passed
        summary.write(RESULTS)
        print(summary.text())
        print(f"written to {RESULTS}/soak.txt and {RESULTS}/soak.json", file=sys.stderr)
    finally:
        enclosure.close(keep=options.keep or not passed)
    return 0 if passed else 1


def _soak(plan: Plan, enclosure: Enclosure) -> Summary:
    print(f"soak: {plan.minutes:g} minutes, seed {plan.seed}, in {enclosure.root}", flush=True)
    pace, answers = Pace(), Observations()
    stack = Stack(enclosure, pace)
    faults, operator, watch = Faults(stack, plan), Operator(stack, plan.seed), Watch(stack)
    load = Load(stack, plan, answers)
    summary = Summary(plan, pace, answers, faults, operator)
    enter(stack.networks.near)
    try:
        with web_server(stack.networks.near):
            stack.start()
            warm_up(stack, plan, answers)
            pace.sleep(5.0)
            before = watch.holding()
            print(f"{pace.awake:7.1f}  everything works; the load begins", flush=True)
            for part in (operator, watch, load):
                part.start()
            if not plan.no_faults:
                faults.start()
            begun = pace.awake
            _wait(plan, pace, answers)
            summary.loaded = pace.awake - begun
            if not plan.no_faults:
                faults.stop()
            missing = load.works(pace.awake, _RECOVERY_SECONDS)
            load.stop()
            watch.stop()
            operator.stop()
            operator.close_all()
            rest, _ = holds_no_more(watch, before, stack)
            status = stack.stop() or stack.once_more()
        verified = stack.home.place.palyra("journal", "verify", "--json")
        left = nothing_is_left(stack)
        deaf = no_listener_is_left(watch)
    finally:
        stack.close()
        pace.close()
    summary.record = Record(stack.home.place.state)
    summary.samples = watch.samples
    summary.log = _log(stack.home.log)
    summary.verdicts = [
        Verdict(what="everything works after the last fault", problems=[f"{kind} does not" for kind in missing]),
        Verdict(what="faults could be made and mended", problems=faults.failed, note=f"{len(faults.done)} faults"),
        Verdict(what="the daemon stops in order", problems=[f"with status {status}"] if status else []),
        Verdict(
            what="the journal verifies offline",
            problems=[verified.stdout] if verified.status else [],
            note=f"{summary.record.kinds.total()} events",
        ),
        *judge(summary.record, answers, stack.shelf),
        rest,
        left,
        deaf,
        memory_is_bounded(watch.samples),
        memory_of_workers_is_bounded(watch.samples),
        _without_tracebacks(stack.home.log),
    ]
    return summary


def _wait(plan: Plan, pace: Pace, answers: Observations) -> None:
    """To the end of the load, or to the first Ctrl-C: what has happened until then is judged."""
    enough = threading.Event()
    signal.signal(signal.SIGINT, lambda _number, _frame: enough.set())
    begun = pace.awake
    while (passed := pace.awake - begun) < plan.seconds and not enough.is_set():
        pace.sleep(min(_PROGRESS_SECONDS, plan.seconds - passed), enough)
        totals = answers.totals()
        print(
            f"{pace.awake:7.1f}  {totals.total()} outcomes, {totals['ok']} ok, {len(answers.wrong)} wrong",
            flush=True,
        )


def _log(path: Path) -> Counter[str]:
    """Lines without what differs from one to the next."""
    lines: Counter[str] = Counter()
    for line in path.read_text(errors="replace").splitlines():
        plain = re.sub(r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "ID", re.sub(r"^\S+T\S+Z?\s+", "", line))
        lines[re.sub(r"\d+", "N", plain)[:220]] += 1
    return lines


def _without_tracebacks(path: Path) -> Verdict:
    text = path.read_text(errors="replace")
    found = [text[at.start() : at.start() + 1_500] for at in re.finditer("Traceback", text)]
    return Verdict(what="the daemon logged no traceback", problems=found)


if __name__ == "__main__":
    sys.exit(main())
