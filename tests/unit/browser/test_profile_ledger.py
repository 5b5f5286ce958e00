"""The registry and the states as one: failing disks, interrupted saves, strays."""

import os
from pathlib import Path

import pytest

from fakes.profile_scene import ANNA, ProfileScene, snapshot
from palyra.browser.domain.profile import ProfilesUnusable
from palyra.browser.profiles.ledger import COPY, REGISTRY, Found


@pytest.fixture
def scene(tmp_path: Path) -> ProfileScene:
    return ProfileScene(tmp_path)


def test_a_disk_that_fails_at_any_write_leaves_the_state_before(
    scene: ProfileScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one life: what was refused did not happen, and the next save does."""
    record, sync = scene.made("before"), os.fsync
    with scene.store() as store:
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
    assert scene.content(ANNA, record.profile_id) == "next"


def test_an_interrupted_save_is_completed(scene: ProfileScene) -> None:
    record = scene.made("before")
    registry = (scene.folder / REGISTRY).read_bytes()
    old = scene.state(record).read_bytes()
    with scene.store() as store:
        store.save(ANNA, record.profile_id, snapshot("after"), based_on=1)
    # As it was when the state was on disk and the registry was not yet.
    (scene.folder / REGISTRY).write_bytes(registry)
    (scene.folder / COPY).write_bytes(registry)
    scene.state(record).write_bytes(old)
    with scene.store() as store:
        assert [finding.found for finding in store.findings] == [Found.STATE_COMPLETED]
        assert store.load(ANNA, record.profile_id) == snapshot("after")
    assert len(scene.names()) == 3


def test_strays_are_set_aside_and_told(scene: ProfileScene) -> None:
    record = scene.made("state")
    for name in ("notes.txt", f"{record.profile_id}.99.enc", "01ARZ3NDEKTSV4RRFFQ69G5FAV.1.enc"):
        (scene.folder / name).write_bytes(b"stray")
    with scene.store() as store:
        assert [finding.found for finding in store.findings] == [Found.STATE_SET_ASIDE] * 3
        assert store.load(ANNA, record.profile_id) == snapshot("state")
    assert len(scene.aside()) == 3


def test_a_lost_copy_is_written_again(scene: ProfileScene) -> None:
    scene.made("state")
    for name in (REGISTRY, COPY):
        (scene.folder / name).unlink()
        with scene.store() as store:
            assert len(store.profiles(ANNA)) == 1
        assert (scene.folder / name).exists()
