"""What of the traffic that was refused is held against the worker, and told to the daemon."""

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

# The target was the lease's to reach, and the lease is over.
LEASE_OUTLIVED: Final = "egress.lease_outlived"


class Violation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    worker_id: str
    lease_id: str
    code: str
    host: str = ""
    port: int = 0
    seen_ms: int


class Held(msgspec.Struct, frozen=True):
    """A refusal that counts: its code may be another than the one the tool was told."""

    code: str
    host: str
    port: int


def held_against(access: LeaseAccess, event: Refused, now_ms: int) -> Held | None:
    """None for what honest programs do too.

    When a lease ends under a running program, nothing is allowed any more and the program cannot know: what it was
    allowed until then is only refused for a while. What it never was allowed counts at any time.
    """
    refusal = event.refusal
    if not event.violation:
        return None
    if access.is_over and refusal.host and _was_allowed(access, refusal.host, refusal.port):
        if now_ms < access.ended_ms + limits.ENDED_GRACE_MS:
            return None
        return Held(LEASE_OUTLIVED, refusal.host, refusal.port)
    return Held(refusal.code, refusal.host, refusal.port)


def opened_late(access: LeaseAccess, now_ms: int) -> Held | None:
    """For a worker that wants a door for a lease that is over."""
    late = access.is_over and now_ms >= access.ended_ms + limits.ENDED_GRACE_MS
    return Held(LEASE_OUTLIVED, "", 0) if late else None


class TellOnce:
    """Each kind once for each lease, and so many kinds: the first quarantines, a flood only costs."""

    def __init__(self) -> None:
        self._told: dict[str, set[Held]] = {}

    def is_new(self, lease_id: str, held: Held) -> bool:
        told = self._told.setdefault(lease_id, set())
        if held in told or len(told) >= limits.MAX_VIOLATIONS_PER_LEASE:
            return False
        told.add(held)
        return True

    def is_first(self, lease_id: str) -> bool:
        return len(self._told.get(lease_id, ())) <= 1

    def keep_only(self, lease_ids: frozenset[str]) -> None:
        for lease_id in [each for each in self._told if each not in lease_ids]:
            del self._told[lease_id]


def _was_allowed(access: LeaseAccess, host: str, port: int) -> bool:
    return find_rule(parse_rules(access.grant.hosts), host, port or None) is not None


# Reports that the daemon has not acknowledged, on disk: one file, a line for each report and each acknowledgement.
#
# A line is written before anybody could know of the violation, so the end of the process loses none; ``sync`` makes
# it last through a power cut, and nothing is sent before that. Half a line at the end is what a power cut left:
# dropped.

log = logging.getLogger("palyra.egress")
SPOOL_FILE: Final = "violations.v1.jsonl"
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class SpoolUnusable(Unavailable):
    code = "worker_egress.spool_unusable"
    hint = "check the permissions and the free space of the proxy's own folder"


class Spooled(msgspec.Struct, frozen=True, kw_only=True):
    """``sequence`` grows, over restarts too."""

    sequence: int
    violation: Violation


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    sequence: int
    violation: Violation | None = None


class ViolationSpool:
    """``now_ms`` begins the numbers of a new file: they are never lower than those of an older one."""

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
        """Oldest first."""
        return list(self._waiting.values())

    def append(self, violation: Violation, *, must: bool) -> Spooled | None:
        """Takes one report, for which a full spool has room only if it ``must``. It does not wait for the disk.

        A report that cannot be written is still kept, and told as long as the process lives.
        """
        if len(self._waiting) >= limits.MAX_SPOOLED and not must:
            return None
        self._last = max(self._last + 1, self._now_ms())
        spooled = Spooled(sequence=self._last, violation=violation)
        self._waiting[spooled.sequence] = spooled
        self._write(_Line(sequence=spooled.sequence, violation=violation))
        return spooled

    def sync(self) -> None:
        """For a thread."""
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            log.error("the spool of violations cannot be synced: %s", error.strerror)

    def acknowledge(self, sequence: int) -> bool:
        """Whether it was one that waited."""
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
            # It is told twice after a restart, which costs nothing.
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
        """Whole or not at all: the new file takes the old one's name when it is on disk."""
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


# What a worker's egress proxy tells the daemon about it: on disk before it is out, and until it is acknowledged.

# Answers after which a report is not offered again: the daemon took it, or has it on record that it did not believe it.
FINAL_ANSWERS: Final = frozenset(("", "worker.foreign_egress", "worker.unknown"))


class ViolationReports:
    def __init__(self, spool: ViolationSpool, clock: Clock) -> None:
        self._spool = spool
        self._clock = clock
        self._told = TellOnce()
        self._news = asyncio.Event()
        self._again: set[int] = set()

    def hold(self, grant: LeaseGrant, held: Held) -> None:
        """Never waits. Each kind once for a lease."""
        lease_id = grant.lease_id
        if not self._told.is_new(lease_id, held):
            return
        violation = Violation(
            worker_id=grant.worker_id,
            lease_id=lease_id,
            code=held.code,
            host=held.host,
            port=held.port,
            seen_ms=self._clock.now_ms(),
        )
        if self._spool.append(violation, must=self._told.is_first(lease_id)) is None:
            log.error("the spool is full: %s of lease %s is not reported", held.code, lease_id)
            return
        log.warning("violation of lease %s: %s %s:%d", lease_id, held.code, held.host, held.port)
        self._news.set()

    def forget_all_but(self, lease_ids: frozenset[str]) -> None:
        self._told.keep_only(lease_ids)

    async def waiting(self) -> AsyncIterator[Spooled]:
        """Everything that is not acknowledged, and then whatever comes; for one connection."""
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

    def answered(self, sequence: int, code: str) -> None:
        if code in FINAL_ANSWERS:
            if self._spool.acknowledge(sequence) and code:
                log.error("the daemon did not believe a report: %s", code)
            return
        log.warning("a report could not be taken (%s) and is offered again", code)
        asyncio.get_running_loop().call_later(limits.OFFERED_AGAIN_SECONDS, self._offer_again, sequence)

    def _offer_again(self, sequence: int) -> None:
        self._again.add(sequence)
        self._news.set()
