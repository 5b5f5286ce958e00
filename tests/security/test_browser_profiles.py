"""Attacks on stored browser profiles by somebody who can write their folder and has no key, and deaths on the way.

Whatever is done: a state is refused or recovered, nobody gets another's, and the folder works on.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fakes import profile_harness
from fakes.profile_harness import ANNA, BEN, NEW, OLD, OTHER, ProfileHarness, snapshot
from palyra.browser.domain.profile import (
    BrowserProfileRecord,
    ProfileDamaged,
    ProfileKeyMissing,
    ProfileRolledBack,
    ProfilesFolderRolledBack,
    ProfilesUnusable,
)
from palyra.browser.profiles.encryption import HEADER_BYTES, TAG_BYTES
from palyra.browser.profiles.ledger import COPY, REGISTRY, Found

pytestmark = pytest.mark.promise("P-browser-profile")

BOTH = (REGISTRY, COPY)


@pytest.fixture
def harness(tmp_path: Path) -> ProfileHarness:
    return ProfileHarness(tmp_path)


def refused_and_begun_anew(harness: ProfileHarness, record: BrowserProfileRecord, error: type[Exception]) -> None:
    """Refused, also the second time and in the next life; the evidence is kept; the profile and others can be used."""
    for _ in range(2):
        with harness.store() as store:
            for _ in range(2):
                with pytest.raises(error):
                    store.load(ANNA, record.profile_id)
            with pytest.raises(error):
                store.save(ANNA, record.profile_id, snapshot("x"), based_on=record.revision)
    with harness.store() as store:
        new = store.create(ANNA, "another")
        store.save(ANNA, new.profile_id, snapshot("fresh"), based_on=0)
        begun = store.reset(ANNA, record.profile_id)
        store.save(ANNA, record.profile_id, snapshot("anew"), based_on=begun.revision)
    assert harness.content(ANNA, record.profile_id) == "anew"
    assert harness.content(ANNA, new.profile_id) == "fresh"


def test_a_flipped_bit_at_every_byte_of_a_state(harness: ProfileHarness) -> None:
    record, other = harness.made("state"), harness.made("his", principal=BEN)
    good = harness.state(record).read_bytes()
    saved = harness.folder.parent / "saved"
    shutil.copytree(harness.folder, saved)
    for at in range(len(good)):
        shutil.rmtree(harness.folder)
        shutil.copytree(saved, harness.folder)
        changed = bytearray(good)
        changed[at] ^= 1 << (at % 8)
        harness.state(record).write_bytes(changed)
        with harness.store() as store:
            with pytest.raises((ProfileDamaged, ProfileRolledBack)):
                store.load(ANNA, record.profile_id)
            assert store.load(BEN, other.profile_id) == snapshot("his")
        assert harness.aside() == [harness.state(record).name]
    refused_and_begun_anew(harness, record, ProfileDamaged)


def test_a_flipped_bit_in_the_registry_costs_nothing(harness: ProfileHarness) -> None:
    """Every byte of its head and of its tag; the unit tests of the format flip every one."""
    record = harness.made("state")
    size = (harness.folder / REGISTRY).stat().st_size
    for at in (*range(HEADER_BYTES), *range(HEADER_BYTES, size - TAG_BYTES, 32), *range(size - TAG_BYTES, size)):
        for name in BOTH:
            place = harness.folder / name
            changed = bytearray(place.read_bytes())
            if at < len(changed):
                changed[at] ^= 1 << (at % 8)
                place.write_bytes(changed)
                with harness.store() as store:
                    assert [finding.found for finding in store.findings] == [Found.REGISTRY_REPAIRED]
                    assert store.get(ANNA, record.profile_id) == record
    assert harness.content(ANNA, record.profile_id) == "state"


def test_both_registries_damaged_everything_is_kept_aside_and_the_folder_works(harness: ProfileHarness) -> None:
    record = harness.made("state")
    for name in BOTH:
        raw = bytearray((harness.folder / name).read_bytes())
        raw[-1] ^= 1
        (harness.folder / name).write_bytes(raw)
    with harness.store() as store:
        assert {finding.found for finding in store.findings} == {Found.REGISTRY_LOST}
        assert store.profiles(ANNA) == []
        new = store.create(ANNA, "work")
        store.save(ANNA, new.profile_id, snapshot("fresh"), based_on=0)
    assert harness.aside() == sorted([*BOTH, harness.state(record).name])
    assert harness.content(ANNA, new.profile_id) == "fresh"


@pytest.mark.parametrize("cut", [0, 1, 40, -1])
def test_a_file_cut_short(harness: ProfileHarness, cut: int) -> None:
    record = harness.made("state")
    raw = harness.state(record).read_bytes()
    harness.state(record).write_bytes(raw[:cut])
    refused_and_begun_anew(harness, record, ProfileDamaged)


def test_a_missing_file(harness: ProfileHarness) -> None:
    record = harness.made("state")
    harness.state(record).unlink()
    refused_and_begun_anew(harness, record, ProfileDamaged)


@pytest.mark.parametrize("what", ["link", "folder", "pipe"])
@pytest.mark.parametrize("where", ["state", REGISTRY])
def test_something_else_in_a_files_place(harness: ProfileHarness, what: str, where: str) -> None:
    record = harness.made("state")
    place = harness.state(record) if where == "state" else harness.folder / where
    place.rename(harness.folder.parent / "moved")
    match what:
        case "link":
            place.symlink_to(harness.folder.parent / "moved")
        case "folder":
            place.mkdir()
        case "pipe":
            os.mkfifo(place)
    if where == "state":
        refused_and_begun_anew(harness, record, ProfileDamaged)
    else:
        assert harness.content(ANNA, record.profile_id) == "state"


def test_swapped_files_of_two_principals(harness: ProfileHarness) -> None:
    """Same revision, same key, same daemon: only whose it is differs."""
    hers, his = harness.made("hers"), harness.made("his", principal=BEN)
    one, two = harness.state(hers), harness.state(his)
    kept = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(kept)
    with harness.store() as store, pytest.raises(ProfileDamaged):
        store.load(BEN, his.profile_id)
    refused_and_begun_anew(harness, hers, ProfileDamaged)


def test_swapped_files_of_one_principal(harness: ProfileHarness) -> None:
    bank, games = harness.made("bank", name="bank"), harness.made("games", name="games")
    harness.state(games).replace(harness.state(bank))
    refused_and_begun_anew(harness, bank, ProfileDamaged)


def test_an_older_revision_under_the_new_name(harness: ProfileHarness) -> None:
    before = harness.made("before the password was changed")
    older = harness.state(before).read_bytes()
    with harness.store() as store:
        after = store.save(ANNA, before.profile_id, snapshot("after"), based_on=1)
    harness.state(after).write_bytes(older)
    refused_and_begun_anew(harness, after, ProfileRolledBack)


def test_an_older_registry_beside_newer_states(harness: ProfileHarness) -> None:
    record = harness.made("one")
    older = (harness.folder / REGISTRY).read_bytes()
    with harness.store() as store:
        for revision in (1, 2):
            store.save(ANNA, record.profile_id, snapshot("newer"), based_on=revision)
    for name in BOTH:
        (harness.folder / name).write_bytes(older)
    with harness.store() as store:
        assert Found.ROLLED_BACK in [finding.found for finding in store.findings]
    assert f"{record.profile_id}.3.enc" in harness.aside()
    refused_and_begun_anew(harness, record, ProfileRolledBack)


def test_a_state_from_before_a_reset_never_fits_again(harness: ProfileHarness) -> None:
    record = harness.made("logged in")
    old = harness.state(record).read_bytes()
    with harness.store() as store:
        after = store.reset(ANNA, record.profile_id)
    for revision in (record.revision, after.revision, after.revision + 1):
        (harness.folder / f"{record.profile_id}.{revision}.enc").write_bytes(old)
    with harness.store() as store:
        assert store.load(ANNA, record.profile_id) is None
    # The one that the reset removed is removed again; the others are evidence.
    assert len(harness.aside()) == 2


def test_an_older_copy_of_the_whole_folder_whose_number_was_driven_up(harness: ProfileHarness) -> None:
    """Whoever can write the folder can have the daemon write the registry again, as often as they like."""
    harness.made("logged in")
    older = shutil.copytree(harness.folder, harness.folder.parent / "older")
    with harness.store() as store:
        (record,) = store.profiles(ANNA)
        store.reset(ANNA, record.profile_id)
        last_head = store.head
    shutil.rmtree(harness.folder)
    shutil.copytree(older, harness.folder)
    for _ in range(last_head.generation):
        (harness.folder / COPY).unlink()
        with harness.store() as store:
            found = store.head
    assert found.generation > last_head.generation
    with harness.store() as store:
        assert store.expect(last_head).rolled_back
        with pytest.raises(ProfilesFolderRolledBack):
            store.load(ANNA, record.profile_id)


def test_a_deleted_profile_does_not_come_back(harness: ProfileHarness) -> None:
    record = harness.made("state")
    old = harness.state(record).read_bytes()
    with harness.store() as store:
        store.delete(ANNA, record.profile_id)
    harness.state(record).write_bytes(old)
    with harness.store() as store:
        assert store.profiles(ANNA) == []


def test_a_wrong_key_changes_nothing(harness: ProfileHarness) -> None:
    record = harness.made("state")
    before = {path: path.read_bytes() for path in harness.folder.rglob("*") if path.is_file()}
    with pytest.raises(ProfileKeyMissing), harness.store(OTHER):
        pass
    assert {path: path.read_bytes() for path in harness.folder.rglob("*") if path.is_file()} == before
    assert harness.content(ANNA, record.profile_id) == "state"


def test_a_lost_key_is_not_the_end(harness: ProfileHarness) -> None:
    harness.made("state")
    harness.folder.rename(harness.folder.with_name("sealed"))
    with harness.store(OTHER) as store:
        store.create(ANNA, "work")


def test_a_key_that_only_one_state_needs(harness: ProfileHarness) -> None:
    """A rotation that stopped half way, and then the old key was thrown away."""
    record = harness.made("under the old key")
    with harness.store(NEW, OLD) as store:
        store.create(ANNA, "new")
    with harness.store(NEW) as store:
        with pytest.raises(ProfileKeyMissing):
            store.load(ANNA, record.profile_id)
        with pytest.raises(ProfileKeyMissing):
            store.rotate()
    assert harness.content(ANNA, record.profile_id, NEW, OLD) == "under the old key"


def test_a_damaged_state_does_not_stop_a_rotation(harness: ProfileHarness) -> None:
    bad, good = harness.made("bad", name="bad"), harness.made("good", name="good")
    harness.state(bad).write_bytes(b"PALYRABP")
    with harness.store(NEW, OLD) as store:
        done = store.rotate()
    assert (done.sealed, done.damaged) == ((good.profile_id,), (bad.profile_id,))
    assert harness.content(ANNA, good.profile_id, NEW) == "good"


def test_a_folder_open_to_others_is_refused(harness: ProfileHarness) -> None:
    harness.made("state")
    os.chmod(harness.folder, 0o755)
    with pytest.raises(ProfilesUnusable), harness.store():
        pass


@pytest.mark.parametrize("what", ["save", "delete", "reset", "rotate"])
def test_killed_before_every_step(tmp_path: Path, what: str) -> None:
    """The state is the one before or the one after, and everything else is as it was."""
    template, target = tmp_path / "template", tmp_path / "target"
    harness = ProfileHarness(template)
    record, other = harness.made("before"), harness.made("his", principal=BEN)
    with harness.store() as store:
        last_head = store.head
    command = [sys.executable, profile_harness.__file__, str(template), str(target), what, record.profile_id]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(command, env=environment, check=True, timeout=120)
    folders = list(target.iterdir())
    assert len(folders) > 5
    for folder in folders:
        with ProfileHarness(folder).store(NEW, OLD) as store:
            assert not store.expect(last_head).rolled_back
    contents = {_after_a_death(ProfileHarness(folder), record.profile_id, other.profile_id) for folder in folders}
    expected = {"save": {"before", "after"}, "rotate": {"before"}}
    assert contents == expected.get(what, {"before", None})


def _after_a_death(harness: ProfileHarness, profile_id: str, other_id: str) -> str | None:
    """What the state was. The folder works on, with nothing left over and nothing lost."""
    with harness.store(NEW, OLD) as store:
        assert store.load(BEN, other_id) == snapshot("his")
        there = bool(store.profiles(ANNA))
        state = store.load(ANNA, profile_id) if there else None
        if there:
            now = store.get(ANNA, profile_id).revision
            store.save(ANNA, profile_id, snapshot("next"), based_on=now)
        store.rotate()
    assert len(harness.names()) == len(BOTH) + 1 + there
    assert not any(name.endswith(".new") for name in harness.names())
    assert harness.aside() == []
    assert harness.content(BEN, other_id, NEW) == "his"
    assert not there or harness.content(ANNA, profile_id, NEW) == "next"
    return None if state is None else state.archive.decode()
