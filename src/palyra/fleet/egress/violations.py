"""Violations: which refused traffic counts against the worker, and its reports to the daemon.

A report is on disk before the program sees the refusal, and stays there until the daemon acknowledges it.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import msgspec

from palyra.clock import Clock
from palyra.egress.domain.events import Refused
from palyra.egress.domain.rules import find_rule, parse_rules
from palyra.errors import Unavailable
from palyra.fleet import limits
from palyra.fleet.egress.leases import LeaseAccess, LeaseGrant

# The lease was allowed to reach the target and is over.
LEASE_OUTLIVED: Final = "egress.lease_outlived"


class Violation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    worker_id: str
    lease_id: str
    code: str
    host: str = ""
    port: int = 0
    seen_ms: int


class Held(msgspec.Struct, frozen=True):
    """A refusal that counts. Its code may differ from the code that the tool got."""

    code: str
    host: str
    port: int


def find_violation(access: LeaseAccess, event: Refused, now_ms: int) -> Held | None:
    """Return None for traffic that honest programs cause as well.

    A running program cannot know that its lease ended. For a while its former hosts are refused and do not count. A
    host that was never allowed counts at any time.
    """
    refusal = event.refusal
    if not event.violation:
        return None
    rules = parse_rules(access.grant.hosts)
    if access.is_over and refusal.host and find_rule(rules, refusal.host, refusal.port or None) is not None:
        if now_ms < access.ended_ms + limits.ENDED_GRACE_MS:
            return None
        return Held(LEASE_OUTLIVED, refusal.host, refusal.port)
    return Held(refusal.code, refusal.host, refusal.port)


def find_late_request(access: LeaseAccess, now_ms: int) -> Held | None:
    """Return a violation if the worker asks for a lease long after its end."""
    late = access.is_over and now_ms >= access.ended_ms + limits.ENDED_GRACE_MS
    return Held(LEASE_OUTLIVED, "", 0) if late else None


class ViolationFilter:
    """Reports each kind once per lease, up to a number of kinds. The first report quarantines the worker."""

    def __init__(self) -> None:
        self._reported: dict[str, set[Held]] = {}

    def count(self, lease_id: str, held: Held) -> int:
        """Return the number of kinds of the lease with this new one. Return 0 for a known kind or too many."""
        reported = self._reported.setdefault(lease_id, set())
        if held in reported or len(reported) >= limits.MAX_VIOLATIONS_PER_LEASE:
            return 0
        reported.add(held)
        return len(reported)

    def keep_only(self, lease_ids: frozenset[str]) -> None:
        self._reported = {lease_id: held for lease_id, held in self._reported.items() if lease_id in lease_ids}


log = logging.getLogger("palyra.egress")
SPOOL_FILE: Final = "violations.v1.jsonl"
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class SpoolUnusable(Unavailable):
    code = "worker_egress.spool_unusable"
    hint = "check the permissions and the free space of the proxy's own folder"


class Spooled(msgspec.Struct, frozen=True, kw_only=True):
    """A report. ``sequence`` grows across restarts."""

    sequence: int
    violation: Violation


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    sequence: int
    violation: Violation | None = None


class ViolationSpool:
    """A file with a line for each report and each acknowledgement. A power cut leaves half a line, which is dropped.

    ``now_ms`` begins the numbers of a new file, so that they are never lower than those of an older one.
    """

    def __init__(self, folder: Path, now_ms: Callable[[], int]) -> None:
        self._path = folder / SPOOL_FILE
        self._waiting: dict[int, Spooled] = {}
        self._now_ms = now_ms
        self._last = 0
        try:
            self._descriptor = os.open(self._path, _FLAGS, 0o600)
            self._read()
        except OSError as error:
            raise SpoolUnusable(f"cannot use {self._path}: {error.strerror}") from error

    def __len__(self) -> int:
        return len(self._waiting)

    def waiting(self) -> list[Spooled]:
        return list(self._waiting.values())

    def append(self, violation: Violation, *, must: bool) -> Spooled | None:
        """Add a report without waiting for the disk. A full spool takes only a report that it ``must``.

        A report that cannot be written is kept in memory and sent while the process lives.
        """
        if len(self._waiting) >= limits.MAX_SPOOLED and not must:
            return None
        self._last = max(self._last + 1, self._now_ms())
        spooled = Spooled(sequence=self._last, violation=violation)
        self._waiting[spooled.sequence] = spooled
        self._write(_Line(sequence=spooled.sequence, violation=violation))
        return spooled

    def sync(self) -> None:
        """Wait for the disk, so that a power cut loses no report. Blocking."""
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            log.error("the spool of violations cannot be synced: %s", error.strerror)

    def acknowledge(self, sequence: int) -> bool:
        """Remove a report. Return False if it did not wait."""
        if self._waiting.pop(sequence, None) is None:
            return False
        try:
            if not self._waiting:
                os.ftruncate(self._descriptor, 0)
            elif os.fstat(self._descriptor).st_size > limits.SPOOL_REWRITTEN_BYTES:
                self._rewrite()
            else:
                self._write(_Line(sequence=sequence))
        except OSError as error:
            # The report is sent again after a restart, which does no harm.
            log.warning("an acknowledged violation stays in the spool: %s", error.strerror)
        return True

    def close(self) -> None:
        os.close(self._descriptor)

    def _write(self, line: _Line) -> None:
        data = msgspec.json.encode(line) + b"\n"
        try:
            if os.write(self._descriptor, data) != len(data):
                log.error("a violation was written in part: the disk is full")
        except OSError as error:
            log.error("a violation cannot be kept on disk: %s", error.strerror)

    def _read(self) -> None:
        with open(os.dup(self._descriptor), "rb") as file:
            file.seek(0)
            content = file.read(limits.MAX_SPOOL_BYTES)
        torn = bool(content) and not content.endswith(b"\n")
        for raw in content.split(b"\n"):
            try:
                line = msgspec.json.decode(raw, type=_Line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            self._last = max(self._last, line.sequence)
            if line.violation is None:
                self._waiting.pop(line.sequence, None)
            else:
                self._waiting[line.sequence] = Spooled(sequence=line.sequence, violation=line.violation)
        if torn:
            # The next line must not become the rest of this one.
            self._rewrite()

    def _rewrite(self) -> None:
        """Replace the file as a whole, once the new one is on disk."""
        beside = self._path.with_suffix(".new")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        fresh = os.open(beside, _FLAGS | os.O_EXCL, 0o600)
        try:
            with open(os.dup(fresh), "wb") as file:
                for each in self._waiting.values():
                    file.write(msgspec.json.encode(_Line(sequence=each.sequence, violation=each.violation)) + b"\n")
            os.fdatasync(fresh)
            os.replace(beside, self._path)
        except OSError:
            os.close(fresh)
            raise
        old, self._descriptor = self._descriptor, fresh
        os.close(old)


# After these codes a report is not sent again: the daemon took it, or has recorded that it did not believe it.
FINAL_ANSWERS: Final = frozenset(("", "worker.foreign_egress", "worker.unknown"))


class ViolationReports:
    def __init__(self, spool: ViolationSpool, clock: Clock) -> None:
        self._spool = spool
        self._clock = clock
        self.filter = ViolationFilter()
        self._news = asyncio.Event()
        self._again: set[int] = set()

    def hold(self, grant: LeaseGrant, held: Held) -> None:
        lease_id = grant.lease_id
        number = self.filter.count(lease_id, held)
        if not number:
            return
        violation = Violation(
            worker_id=grant.worker_id,
            lease_id=lease_id,
            code=held.code,
            host=held.host,
            port=held.port,
            seen_ms=self._clock.now_ms(),
        )
        if self._spool.append(violation, must=number == 1) is None:
            log.error("the spool is full: %s of lease %s is not reported", held.code, lease_id)
            return
        log.warning("violation of lease %s: %s %s:%d", lease_id, held.code, held.host, held.port)
        self._news.set()

    async def unacknowledged(self) -> AsyncIterator[Spooled]:
        """Yield the unacknowledged reports and then each new one, for one connection."""
        offered: set[int] = set()
        while True:
            self._news.clear()
            offered -= self._again
            self._again.clear()
            fresh = [each for each in self._spool.waiting() if each.sequence not in offered]
            if fresh:
                await asyncio.to_thread(self._spool.sync)
            for each in fresh:
                offered.add(each.sequence)
                yield each
            offered &= {each.sequence for each in self._spool.waiting()}
            await self._news.wait()

    def on_receipt(self, sequence: int, code: str) -> None:
        if code in FINAL_ANSWERS:
            if self._spool.acknowledge(sequence) and code:
                log.error("the daemon did not believe a report: %s", code)
            return
        log.warning("the daemon could not take a report (%s): it is sent again", code)
        asyncio.get_running_loop().call_later(limits.OFFERED_AGAIN_SECONDS, self._offer_again, sequence)

    def _offer_again(self, sequence: int) -> None:
        self._again.add(sequence)
        self._news.set()
