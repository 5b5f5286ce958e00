"""What must hold at the end, read from the database and the files alone: as an auditor would, with nothing running."""

import json
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from palyra.pipeline.attest import verify_worker_attestation
from palyra.signing.ed25519 import Ed25519Verifier
from palyra.signing.p256 import P256Verifier
from palyra.signing.tool_attestation import verify_evidence
from soak.observations import Observations
from soak.shelf import Shelf

# Whatever goes wrong around it, these are never the answer.
NEVER = frozenset(("internal.bug", "client.bad_answer", "call.output_mismatch", "egress.machine_misused"))
# Every worker of the soak is honest: whatever happens to it, it is never taken for one that lies.
NEVER_OF_WORKERS = frozenset(("worker_cleanup.contradicted", "worker_cleanup.other_lease", "lease.wrong_worker"))
_LEASE_ENDS = ("lease.settled", "lease.fenced", "lease.declined", "lease.expired")
# In the workspace without a call.
_OWN_FILES = frozenset(("made", "greeting.txt"))
_MOST_SHOWN = 5


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    what: str
    problems: list[str]
    note: str = ""

    @property
    def holds(self) -> bool:
        return not self.problems


class Record:
    """The journal and the ledgers, read once."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.kinds: Counter[str] = Counter()
        self.by_call: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
        self.leases: dict[str, list[str]] = defaultdict(list)
        self.approvals: dict[str, list[str]] = defaultdict(list)
        self.returned: Counter[tuple[str, str]] = Counter()
        self.run_of: dict[str, str] = {}
        self.quarantines: Counter[str] = Counter()
        with closing(sqlite3.connect(f"file:{state}/palyra.db?mode=ro", uri=True)) as database, database:
            for kind, run, call, payload in database.execute(
                "SELECT kind, run, call, payload FROM events ORDER BY seq"
            ):
                self._take(kind, run, call, payload)
            self.calls = {
                call: (status, json.loads(reserved))
                for call, status, reserved in database.execute("SELECT call_id, state, reserved FROM calls")
            }
            self.budgets = list(database.execute("SELECT run_id, kind, cap, reserved, used FROM run_budgets"))
            self.open_leases = [
                row[0] for row in database.execute("SELECT lease_id FROM fleet_leases WHERE ended_ms = 0")
            ]
        database.close()

    def _take(self, kind: str, run: str, call: str, payload: bytes) -> None:
        self.kinds[kind] += 1
        if kind.startswith("call."):
            self.by_call[call].append((kind, json.loads(payload)))
            self.run_of[call] = run
        elif kind == "run.budget_returned":
            value = json.loads(payload)
            self.returned[run, value["budget"]] += value["amount"]
        elif kind == "lease.granted" or kind in _LEASE_ENDS:
            self.leases[json.loads(payload)["lease_id"]].append(kind)
        elif kind == "worker.quarantined":
            self.quarantines[json.loads(payload)["reason"]] += 1
        elif kind.startswith("approval."):
            self.approvals[json.loads(payload)["approval_id"]].append(kind)


def judge(record: Record, answers: Observations, shelf: Shelf) -> list[Verdict]:
    return [
        every_call_ended_once(record),
        callers_got_true_answers(record, answers),
        budgets_balance(record),
        leases_ended_once(record),
        honest_workers_are_believed(record),
        approvals_were_used_once(record),
        files_are_as_recorded(answers, shelf),
        results_are_attested(record, answers),
        nothing_was_wrong(answers),
    ]


def every_call_ended_once(record: Record) -> Verdict:
    problems, ends = [], Counter[str]()
    for call, events in record.by_call.items():
        kinds = Counter(kind for kind, _ in events)
        started = kinds["call.started"]
        over = kinds["call.finished"] + kinds["call.abandoned"]
        status = record.calls.get(call, ("missing", {}))[0]
        expected: set[str]
        if started:
            last = events[-1]
            expected = {"abandoned"} if kinds["call.abandoned"] else {str(last[1].get("state"))}
        elif kinds["call.refused"]:
            # A person's no is a refusal of a call that then counts as denied.
            expected = {"refused", "denied"}
        else:
            expected = {"denied", "needs_approval"}
        ends[status] += 1
        if started > 1 or over != started or kinds["call.refused"] > 1 or status not in expected:
            problems.append(f"{call} is {status}: {dict(kinds)}")
    running = [call for call, (status, _) in record.calls.items() if status == "running"]
    problems += [f"{call} still runs" for call in running]
    problems += [
        f"{call} is in the ledger and not in the journal" for call in record.calls if call not in record.by_call
    ]
    note = f"{len(record.by_call)} calls: " + ", ".join(f"{count} {status}" for status, count in ends.most_common())
    return Verdict(what="every call ended exactly once", problems=problems, note=note)


def callers_got_true_answers(record: Record, answers: Observations) -> Verdict:
    """What a caller was told a call ended as is what the ledger says."""
    problems = [f"told twice: {one}" for one in answers.twice]
    for call, seen in answers.calls.items():
        status = record.calls.get(call, ("missing", {}))[0]
        if status != seen.status and seen.status not in ("needs_approval", "running"):
            problems.append(f"{seen.kind} {call}: its caller was told {seen.status}, the ledger says {status}")
    return Verdict(what="callers got what is recorded", problems=problems, note=f"{len(answers.calls)} answers")


def budgets_balance(record: Record) -> Verdict:
    """Nothing is reserved, and what is used is what the journal says was used."""
    settled: Counter[tuple[str, str]] = Counter()
    for call, events in record.by_call.items():
        reserved: dict[str, int] = {}
        for kind, payload in events:
            if kind == "call.started":
                reserved = payload["reserved"]
            elif kind == "call.finished":
                for budget in reserved:
                    settled[record.run_of[call], budget] += payload["used"].get(budget, 0)
    problems = []
    for run, kind, cap, reserved_now, used in record.budgets:
        should = settled[run, kind] - record.returned[run, kind]
        if reserved_now:
            problems.append(f"run {run}: {reserved_now} {kind} still reserved")
        if used != should:
            problems.append(f"run {run}: {used} {kind} used, the journal has {should}")
        if kind == "calls" and used > cap:
            problems.append(f"run {run}: {used} calls of {cap}")
    problems += [f"{call} still has reserved {held}" for call, (_, held) in record.calls.items() if held]
    return Verdict(what="budgets balance", problems=problems, note=f"{len(record.budgets)} accounts")


def leases_ended_once(record: Record) -> Verdict:
    problems = [
        f"{lease}: {kinds}"
        for lease, kinds in record.leases.items()
        if kinds.count("lease.granted") != 1 or len(kinds) != 2
    ]
    problems += [f"{lease} is still open" for lease in record.open_leases]
    return Verdict(what="every lease ended exactly once", problems=problems, note=f"{len(record.leases)} leases")


def honest_workers_are_believed(record: Record) -> Verdict:
    problems = [f"{count} times {reason}" for reason, count in record.quarantines.items() if reason in NEVER_OF_WORKERS]
    note = ", ".join(f"{count} {reason}" for reason, count in record.quarantines.most_common())
    return Verdict(what="no honest worker was taken for a liar", problems=problems, note=note)


def approvals_were_used_once(record: Record) -> Verdict:
    problems = []
    decided = ("approval.approved", "approval.denied")
    for approval, kinds in record.approvals.items():
        count = Counter(kinds)
        if count["approval.requested"] != 1 or count["approval.consumed"] > 1 or sum(count[one] for one in decided) > 1:
            problems.append(f"{approval}: {kinds}")
        if count["approval.consumed"] and not count["approval.approved"]:
            problems.append(f"{approval} was used without a yes: {kinds}")
    note = ", ".join(f"{record.kinds[kind]} {kind}" for kind in sorted(record.kinds) if kind.startswith("approval."))
    return Verdict(what="every approval was decided and used at most once", problems=problems, note=note)


def files_are_as_recorded(answers: Observations, shelf: Shelf) -> Verdict:
    problems = []
    for name, (content, written) in answers.files.items():
        path = shelf.place(name)
        there = path.is_file()
        if written == "yes" and not there:
            problems.append(f"{name} was written and is not there")
        elif written == "no" and there:
            problems.append(f"{name} is there without a yes")
        elif there and path.read_bytes() != content.encode():
            problems.append(f"{name} is torn: {path.stat().st_size} bytes")
    found = {path.relative_to(shelf.workspace).as_posix() for path in shelf.workspace.rglob("*")}
    problems += [f"{name} came back to the workspace" for name in sorted(found & shelf.away)]
    problems += [f"{name} was left in the workspace" for name in sorted(found - answers.files.keys() - _OWN_FILES)]
    note = f"{len(answers.files)} files, {len(shelf.away)} put away, {len(found - _OWN_FILES)} in the workspace"
    return Verdict(what="files are what their calls made of them", problems=problems, note=note)


def results_are_attested(record: Record, answers: Observations) -> Verdict:
    keys = [Ed25519Verifier.from_pem_file(record.state / "signing.pub")]
    problems, count, on_workers = [], 0, 0
    for kind, documents in answers.documents.items():
        for document in documents:
            count += 1
            try:
                raw = json.dumps({"ok": True, "data": document}).encode()
                said = verify_worker_attestation(raw, verify_evidence(raw, keys).attestation, P256Verifier.from_der)
                on_workers += said is not None
                if kind.startswith("worker") and said is None:
                    problems.append(f"{document['call_id']} ran on a worker without its word")
            except Exception as error:
                problems.append(f"{kind} {document['call_id']}: {error}")
    note = f"{count} results, {on_workers} of them with their worker's word"
    return Verdict(what="results are attested", problems=problems, note=note)


def nothing_was_wrong(answers: Observations) -> Verdict:
    problems = list(answers.wrong)
    problems += [
        f"{count} times {code}: {answers.messages[code]}" for code, count in answers.totals().items() if code in NEVER
    ]
    return Verdict(what="no answer was wrong", problems=problems)


def render(verdict: Verdict) -> str:
    lines = [
        f"{'holds' if verdict.holds else 'FAILS':>6}  {verdict.what}" + (f" ({verdict.note})" if verdict.note else "")
    ]
    lines += [f"          {problem}" for problem in verdict.problems[:_MOST_SHOWN]]
    if len(verdict.problems) > _MOST_SHOWN:
        lines.append(f"          and {len(verdict.problems) - _MOST_SHOWN} more")
    return "\n".join(lines)
