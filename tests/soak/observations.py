"""What the callers saw: every outcome by kind and code, how long it took, and what must hold of it afterwards."""

import threading
from collections import Counter, defaultdict
from typing import Any

import msgspec

OK = "ok"
# Of every kind so many successful documents are kept, to have their attestations verified.
KEPT_DOCUMENTS = 40
# Most latencies that are kept of one kind: enough for a p99, bounded for long runs.
_KEPT_LATENCIES = 20_000


class Seen(msgspec.Struct, frozen=True):
    """A call as its caller was told it ended."""

    kind: str
    status: str


class Observations:
    def __init__(self) -> None:
        self.outcomes: dict[str, Counter[str]] = defaultdict(Counter)
        self.messages: dict[str, str] = {}
        self.latencies: dict[str, list[float]] = defaultdict(list)
        self.calls: dict[str, Seen] = {}
        self.twice: list[str] = []
        self.wrong: list[str] = []
        self.documents: dict[str, list[dict[str, Any]]] = defaultdict(list)
        # The content that a file has if its call had an effect, and how the call ended as far as its caller knows.
        self.files: dict[str, tuple[str, str]] = {}
        self.last_success: dict[str, float] = {}
        self._lock = threading.Lock()

    def note(self, kind: str, code: str, seconds: float, now: float, message: str = "") -> None:
        with self._lock:
            self.outcomes[kind][code] += 1
            if code == OK:
                self.last_success[kind] = now
                if len(self.latencies[kind]) < _KEPT_LATENCIES:
                    self.latencies[kind].append(seconds)
            elif code not in self.messages:
                self.messages[code] = message[:300]

    def saw(self, kind: str, document: dict[str, Any]) -> None:
        call_id, status = str(document["call_id"]), str(document["status"])
        with self._lock:
            before = self.calls.get(call_id)
            if before is not None and before.status != "needs_approval":
                self.twice.append(f"{call_id}: {before.status}, then {status}")
            self.calls[call_id] = Seen(kind, status)
            if status == "succeeded" and len(self.documents[kind]) < KEPT_DOCUMENTS:
                self.documents[kind].append(document)

    def is_wrong(self, what: str) -> None:
        with self._lock:
            self.wrong.append(what)

    def wrote(self, path: str, content: str, status: str) -> None:
        with self._lock:
            self.files[path] = (content, status)

    def totals(self) -> Counter[str]:
        with self._lock:
            found: Counter[str] = Counter()
            for codes in self.outcomes.values():
                found.update(codes)
            return found
