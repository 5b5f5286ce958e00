"""Profiles as their principals use them."""

from pathlib import Path

import pytest

from fakes.profile_harness import ANNA, BEN, NEW, OLD, ProfileHarness, snapshot
from palyra.browser.domain.profile import (
    MAX_PROFILES_PER_PRINCIPAL,
    MAX_SNAPSHOT_BYTES,
    BadProfile,
    NoSuchProfile,
    NothingToAccept,
    NotPersistent,
    PersistedSessionSnapshot,
    ProfileChanged,
    ProfileExists,
    ProfilesFolderRolledBack,
    ProfilesUnusable,
    SnapshotTooLarge,
    TooManyProfiles,
)
from palyra.browser.domain.session_api import ProfilesHead
from palyra.browser.profiles.encryption import MAX_LINEAGE


@pytest.fixture
def harness(tmp_path: Path) -> ProfileHarness:
    return ProfileHarness(tmp_path)


def test_a_state_is_there_again_in_the_next_life(harness: ProfileHarness) -> None:
    record = harness.made("first", "second")
    with harness.store() as store:
        assert store.load(ANNA, record.profile_id) == snapshot("second")
        assert store.profiles(ANNA) == [record]
        assert store.findings == ()
    assert harness.names() == sorted(["profiles.copy.enc", "profiles.enc", f"{record.profile_id}.2.enc"])


def test_a_new_profile_has_no_state(harness: ProfileHarness) -> None:
    assert harness.content(ANNA, harness.made().profile_id) is None


def test_nothing_readable_lies_on_the_disk(harness: ProfileHarness) -> None:
    harness.made("cookie-value-42", name="my-private-name")
    everything = b"".join(path.read_bytes() for path in harness.folder.rglob("*") if path.is_file())
    for text in (b"cookie-value-42", b"my-private-name", ANNA.encode(), b"shop.test"):
        assert text not in everything


def test_another_principal_sees_nothing(harness: ProfileHarness) -> None:
    record = harness.made("secret")
    with harness.store() as store:
        assert store.profiles(BEN) == []
        for attempt in (
            lambda: store.get(BEN, record.profile_id),
            lambda: store.load(BEN, record.profile_id),
            lambda: store.save(BEN, record.profile_id, snapshot("x"), based_on=1),
            lambda: store.reset(BEN, record.profile_id),
            lambda: store.delete(BEN, record.profile_id),
            lambda: store.rename(BEN, record.profile_id, name="x", colour="#000000"),
        ):
            with pytest.raises(NoSuchProfile):
                attempt()
        store.create(BEN, record.name)
    assert harness.content(ANNA, record.profile_id) == "secret"


def test_sixteen_profiles_for_each_principal(harness: ProfileHarness) -> None:
    with harness.store() as store:
        for number in range(MAX_PROFILES_PER_PRINCIPAL):
            store.create(ANNA, f"p{number}")
        with pytest.raises(TooManyProfiles):
            store.create(ANNA, "one more")
        store.create(BEN, "p0")
        store.delete(ANNA, store.profiles(ANNA)[0].profile_id)
        store.create(ANNA, "one more")


def test_private_profiles_persist_nothing(harness: ProfileHarness) -> None:
    with harness.store() as store:
        record = store.create(ANNA, "private", persistence=False, private=True)
        with pytest.raises(NotPersistent):
            store.save(ANNA, record.profile_id, snapshot("trace"), based_on=0)
        assert store.load(ANNA, record.profile_id) is None
        with pytest.raises(BadProfile):
            store.create(ANNA, "both", persistence=True, private=True)
    assert harness.names() == ["profiles.copy.enc", "profiles.enc"]


def test_of_two_sessions_the_first_to_end_is_kept(harness: ProfileHarness) -> None:
    record = harness.made("base")
    with harness.store() as store:
        store.save(ANNA, record.profile_id, snapshot("first"), based_on=1)
        with pytest.raises(ProfileChanged):
            store.save(ANNA, record.profile_id, snapshot("second"), based_on=1)
    assert harness.content(ANNA, record.profile_id) == "first"


def test_a_reset_profile_is_empty_and_can_be_used(harness: ProfileHarness) -> None:
    record = harness.made("old")
    with harness.store() as store:
        after = store.reset(ANNA, record.profile_id)
        assert store.load(ANNA, record.profile_id) is None
        assert after.persistence_id != record.persistence_id and after.revision > record.revision
        store.save(ANNA, record.profile_id, snapshot("new"), based_on=after.revision)
    assert harness.content(ANNA, record.profile_id) == "new"
    assert len(harness.names()) == 3


def test_names(harness: ProfileHarness) -> None:
    record = harness.made()
    with harness.store() as store:
        with pytest.raises(ProfileExists):
            store.create(ANNA, "work")
        other = store.create(ANNA, "home")
        with pytest.raises(ProfileExists):
            store.rename(ANNA, other.profile_id, name="work", colour="#000000")
        with pytest.raises(BadProfile):
            store.rename(ANNA, other.profile_id, name="home", colour="red")
        assert store.rename(ANNA, record.profile_id, name="work", colour="#00ff00").colour == "#00ff00"


def test_a_state_beyond_the_limit_is_refused_and_the_last_one_kept(harness: ProfileHarness) -> None:
    record = harness.made("kept")
    with harness.store() as store, pytest.raises(SnapshotTooLarge):
        huge = PersistedSessionSnapshot(archive=bytes(MAX_SNAPSHOT_BYTES + 1))
        store.save(ANNA, record.profile_id, huge, based_on=1)
    assert harness.content(ANNA, record.profile_id) == "kept"


def test_one_daemon_at_a_time(harness: ProfileHarness) -> None:
    with harness.store(), pytest.raises(ProfilesUnusable), harness.store():
        pass
    with harness.store():
        pass


def test_rotation_leaves_nothing_under_the_old_key(harness: ProfileHarness) -> None:
    record, other = harness.made("state"), harness.made("his", principal=BEN)
    with harness.store(NEW, OLD) as store:
        assert store.load(ANNA, record.profile_id) == snapshot("state")
        done = store.rotate()
        assert (set(done.sealed), done.damaged) == ({record.profile_id, other.profile_id}, ())
        assert store.rotate().sealed == ()
    assert harness.content(ANNA, record.profile_id, NEW) == "state"
    assert harness.content(BEN, other.profile_id, NEW) == "his"


ELSEWHERE = ProfilesHead(generation=40, mark="of another copy")


def test_profiles_follow_on_every_change_that_led_to_them_and_on_no_other(harness: ProfileHarness) -> None:
    with harness.store() as store:
        received = [store.head]
        stop = store.subscribe(lambda: received.append(store.head))
        record = store.create(ANNA, "work")
        for revision in range(3):
            store.save(ANNA, record.profile_id, snapshot("x"), based_on=revision)
        stop()
        store.rename(ANNA, record.profile_id, name="home", colour="#000000")
    assert len({head.mark for head in received}) == len(received) == 5
    with harness.store() as store:
        assert not any(store.expect(head).rolled_back for head in received)
        assert store.expect(ELSEWHERE).rolled_back
        # Who knows nothing expects nothing.
        assert not store.expect(ProfilesHead()).rolled_back


def test_what_does_not_follow_is_seen_and_not_used_until_it_is_accepted(harness: ProfileHarness) -> None:
    record = harness.made("state")
    with harness.store() as store:
        with pytest.raises(NothingToAccept):
            store.accept()
        store.expect(ELSEWHERE)
        for attempt in (
            lambda: store.profiles(ANNA),
            lambda: store.create(ANNA, "another"),
            lambda: store.get(ANNA, record.profile_id),
            lambda: store.load(ANNA, record.profile_id),
            lambda: store.save(ANNA, record.profile_id, snapshot("x"), based_on=1),
            lambda: store.reset(ANNA, record.profile_id),
            lambda: store.delete(ANNA, record.profile_id),
            lambda: store.rename(ANNA, record.profile_id, name="x", colour="#000000"),
        ):
            with pytest.raises(ProfilesFolderRolledBack) as refused:
                attempt()
            assert refused.value.details == {"generation": 40, "found": store.head.generation}
        assert store.every_profile() == [record]
        accepted = store.accept()
        assert accepted.generation == 41 and not accepted.rolled_back
        assert store.load(ANNA, record.profile_id) == snapshot("state")
    # Also for who was not told of it any more.
    with harness.store() as store:
        assert not store.expect(ELSEWHERE).rolled_back and not store.expect(accepted).rolled_back


def test_a_disk_that_fails_accepts_nothing(harness: ProfileHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.made("state")
    with harness.store() as store:
        store.expect(ELSEWHERE)
        with monkeypatch.context() as patch:

            def full(*_: object) -> None:
                raise OSError(28, "No space left on device")

            patch.setattr("os.fsync", full)
            with pytest.raises(ProfilesUnusable):
                store.accept()
        assert store.head.rolled_back
        assert not store.accept().rolled_back


def test_a_lineage_has_an_end_and_a_new_key_does_not_use_it_up(harness: ProfileHarness) -> None:
    record = harness.made("state")
    with harness.store() as store:
        before = store.head
    with harness.store(NEW, OLD) as store:
        for _ in range(MAX_LINEAGE):
            store.rotate()
        assert store.head.generation > before.generation + MAX_LINEAGE
        assert not store.expect(before).rolled_back
        for number in range(MAX_LINEAGE):
            store.rename(ANNA, record.profile_id, name=f"n{number}", colour="#000000")
        assert store.expect(before).rolled_back
