"""The registry and the states as one: failing disks, interrupted saves, strays."""

import os
from pathlib import Path

import pytest

from fakes.profile_harness import ANNA, ProfileHarness, snapshot
from palyra.browser.domain.profile import ProfilesUnusable
from palyra.browser.profiles.ledger import COPY, REGISTRY, Found


@pytest.fixture
def harness(tmp_path: Path) -> ProfileHarness:
    return ProfileHarness(tmp_path)


def test_a_disk_that_fails_at_any_write_leaves_the_state_before(
    harness: ProfileHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one life: what was refused did not happen, and the next save does."""
    record, sync = harness.made("before"), os.fsync
    with harness.store() as store:
        for failing in range(1, 5):
            calls = 0

            def full(descriptor: int, *, nth: int = failing) -> None:
                nonlocal calls
                calls += 1
                if calls == nth:
                    raise OSError(28, "No space left on device")
                sync(descriptor)

            now = store.get(ANNA, record.profile_id)
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", full)
                with pytest.raises(ProfilesUnusable):
                    store.save(ANNA, record.profile_id, snapshot(f"try {failing}"), based_on=now.revision)
            loaded = store.load(ANNA, record.profile_id)
            assert loaded is not None
            # The last of the four is after the registry took its place: that counts.
            assert loaded.archive == (b"try 4" if failing == 4 else b"before")
        now = store.get(ANNA, record.profile_id)
        store.save(ANNA, record.profile_id, snapshot("next"), based_on=now.revision)
    assert harness.content(ANNA, record.profile_id) == "next"


def test_an_interrupted_save_is_completed(harness: ProfileHarness) -> None:
    record = harness.made("before")
    registry = (harness.folder / REGISTRY).read_bytes()
    old = harness.state(record).read_bytes()
    with harness.store() as store:
        store.save(ANNA, record.profile_id, snapshot("after"), based_on=1)
    # As it was when the state was on disk and the registry was not yet.
    (harness.folder / REGISTRY).write_bytes(registry)
    (harness.folder / COPY).write_bytes(registry)
    harness.state(record).write_bytes(old)
    with harness.store() as store:
        assert [finding.found for finding in store.findings] == [Found.STATE_COMPLETED]
        assert store.load(ANNA, record.profile_id) == snapshot("after")
    assert len(harness.names()) == 3


def test_strays_are_set_aside_and_told(harness: ProfileHarness) -> None:
    record = harness.made("state")
    for name in ("notes.txt", f"{record.profile_id}.99.enc", "01ARZ3NDEKTSV4RRFFQ69G5FAV.1.enc"):
        (harness.folder / name).write_bytes(b"stray")
    with harness.store() as store:
        assert [finding.found for finding in store.findings] == [Found.STATE_SET_ASIDE] * 3
        assert store.load(ANNA, record.profile_id) == snapshot("state")
    assert len(harness.aside()) == 3


def test_a_lost_copy_is_written_again(harness: ProfileHarness) -> None:
    harness.made("state")
    for name in (REGISTRY, COPY):
        (harness.folder / name).unlink()
        with harness.store() as store:
            assert len(store.profiles(ANNA)) == 1
        assert (harness.folder / name).exists()
