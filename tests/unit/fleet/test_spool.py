"""Reports that wait are on disk: over restarts, half lines, a full spool."""

import os
from pathlib import Path

import pytest

from palyra.fleet import limits
from palyra.fleet.egress.violations import SPOOL_FILE, SpoolUnusable, Violation, ViolationSpool


def seen(number: int) -> Violation:
    return Violation(worker_id="w", lease_id=f"l{number}", code="egress.host_not_allowed", host="b.example", seen_ms=1)


def spool(folder: Path, now: int = 100) -> ViolationSpool:
    return ViolationSpool(folder, lambda: now)


def test_what_was_not_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    first = spool(tmp_path)
    numbers = [first.append(seen(number), must=False) for number in range(3)]
    assert all(numbers) and (tmp_path / SPOOL_FILE).stat().st_mode & 0o777 == 0o600
    first.sync()
    assert first.acknowledge(numbers[1].sequence)  # type: ignore[union-attr]
    assert not first.acknowledge(numbers[1].sequence)  # type: ignore[union-attr]
    # Never closed: as if killed.
    again = spool(tmp_path, now=0)
    assert [each.violation.lease_id for each in again.waiting()] == ["l0", "l2"]
    fresh = again.append(seen(9), must=False)
    assert fresh is not None and fresh.sequence > numbers[2].sequence  # type: ignore[union-attr]
    for each in again.waiting():
        again.acknowledge(each.sequence)
    assert (tmp_path / SPOOL_FILE).stat().st_size == 0 and len(again) == 0
    first.close()
    again.close()


def test_half_a_line_is_dropped_and_the_next_is_whole(tmp_path: Path) -> None:
    first = spool(tmp_path)
    first.append(seen(1), must=False)
    first.close()
    with open(tmp_path / SPOOL_FILE, "ab") as file:
        file.write(b'{"sequence":999,"viol')
    second = spool(tmp_path)
    second.append(seen(2), must=False)
    second.close()
    third = spool(tmp_path)
    assert [each.violation.lease_id for each in third.waiting()] == ["l1", "l2"]
    third.close()


def test_damage_in_the_middle_costs_only_its_line(tmp_path: Path) -> None:
    first = spool(tmp_path)
    for number in range(3):
        first.append(seen(number), must=False)
    first.close()
    lines = (tmp_path / SPOOL_FILE).read_bytes().splitlines(keepends=True)
    (tmp_path / SPOOL_FILE).write_bytes(lines[0] + b"\xff\xfe nonsense\n" + lines[2])
    second = spool(tmp_path)
    assert [each.violation.lease_id for each in second.waiting()] == ["l0", "l2"]
    second.close()


def test_a_full_spool_still_takes_the_first_of_a_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_SPOOLED", 2)
    full = spool(tmp_path)
    assert full.append(seen(1), must=False) and full.append(seen(2), must=False)
    assert full.append(seen(3), must=False) is None
    assert full.append(seen(4), must=True)
    full.close()


def test_a_long_spool_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SPOOL_REWRITTEN_BYTES", 500)
    long = spool(tmp_path)
    taken = [long.append(seen(number), must=False) for number in range(40)]
    for each in taken[:-1]:
        assert each is not None and long.acknowledge(each.sequence)
    assert (tmp_path / SPOOL_FILE).stat().st_size < 500
    long.append(seen(77), must=False)
    long.close()
    again = spool(tmp_path)
    assert [each.violation.lease_id for each in again.waiting()] == ["l39", "l77"]
    again.close()


def test_a_disk_that_takes_nothing_loses_nothing_while_the_process_lives(tmp_path: Path) -> None:
    broken = spool(tmp_path)
    unwritable = os.open(tmp_path / SPOOL_FILE, os.O_RDONLY)
    broken._descriptor, kept = unwritable, broken._descriptor
    taken = broken.append(seen(1), must=False)
    broken.sync()
    assert taken is not None and broken.waiting() == [taken]
    assert broken.acknowledge(taken.sequence) and broken.waiting() == []
    os.close(kept)
    broken.close()


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / SPOOL_FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SpoolUnusable):
        spool(tmp_path)
