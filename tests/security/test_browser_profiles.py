"""Attacks on stored browser profiles by somebody who can write their folder and has no key, and deaths on the way.

Whatever is done: a state is refused or recovered, nobody gets another's, and the folder works on.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fakes import profile_scene
from fakes.profile_scene import ANNA, BEN, NEW, OLD, OTHER, ProfileScene, snapshot
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
def scene(tmp_path: Path) -> ProfileScene:
    return ProfileScene(tmp_path)


def refused_and_begun_anew(scene: ProfileScene, record: BrowserProfileRecord, error: type[Exception]) -> None:
    """Refused, also the second time and in the next life; the evidence is kept; the profile and others can be used."""
    for _ in range(2):
        with scene.store() as store:
            for _ in range(2):
                with pytest.raises(error):
                    store.load(ANNA, record.profile_id)
            with pytest.raises(error):
                store.save(ANNA, record.profile_id, snapshot("x"), based_on=record.revision)
    with scene.store() as store:
        new = store.create(ANNA, "another")
        store.save(ANNA, new.profile_id, snapshot("fresh"), based_on=0)
        begun = store.reset(ANNA, record.profile_id)
        store.save(ANNA, record.profile_id, snapshot("anew"), based_on=begun.revision)
    assert scene.content(ANNA, record.profile_id) == "anew"
    assert scene.content(ANNA, new.profile_id) == "fresh"


def test_a_flipped_bit_at_every_byte_of_a_state(scene: ProfileScene) -> None:
    record, other = scene.made("state"), scene.made("his", principal=BEN)
    good = scene.state(record).read_bytes()
    saved = scene.folder.parent / "saved"
    shutil.copytree(scene.folder, saved)
    for at in range(len(good)):
        shutil.rmtree(scene.folder)
        shutil.copytree(saved, scene.folder)
        changed = bytearray(good)
        changed[at] ^= 1 << (at % 8)
        scene.state(record).write_bytes(changed)
        with scene.store() as store:
            with pytest.raises((ProfileDamaged, ProfileRolledBack)):
                store.load(ANNA, record.profile_id)
            assert store.load(BEN, other.profile_id) == snapshot("his")
        assert scene.aside() == [scene.state(record).name]
    refused_and_begun_anew(scene, record, ProfileDamaged)


def test_a_flipped_bit_in_the_registry_costs_nothing(scene: ProfileScene) -> None:
    """Every byte of its head and of its tag; the unit tests of the format flip every one."""
    record = scene.made("state")
    size = (scene.folder / REGISTRY).stat().st_size
    for at in (*range(HEADER_BYTES), *range(HEADER_BYTES, size - TAG_BYTES, 32), *range(size - TAG_BYTES, size)):
        for name in BOTH:
            place = scene.folder / name
            changed = bytearray(place.read_bytes())
            if at < len(changed):
                changed[at] ^= 1 << (at % 8)
                place.write_bytes(changed)
                with scene.store() as store:
                    assert [finding.found for finding in store.findings] == [Found.REGISTRY_REPAIRED]
                    assert store.get(ANNA, record.profile_id) == record
    assert scene.content(ANNA, record.profile_id) == "state"


def test_both_registries_damaged_everything_is_kept_aside_and_the_folder_works(scene: ProfileScene) -> None:
    record = scene.made("state")
    for name in BOTH:
        raw = bytearray((scene.folder / name).read_bytes())
        raw[-1] ^= 1
        (scene.folder / name).write_bytes(raw)
    with scene.store() as store:
        assert {finding.found for finding in store.findings} == {Found.REGISTRY_LOST}
        assert store.profiles(ANNA) == []
        new = store.create(ANNA, "work")
        store.save(ANNA, new.profile_id, snapshot("fresh"), based_on=0)
    assert scene.aside() == sorted([*BOTH, scene.state(record).name])
    assert scene.content(ANNA, new.profile_id) == "fresh"


@pytest.mark.parametrize("cut", [0, 1, 40, -1])
def test_a_file_cut_short(scene: ProfileScene, cut: int) -> None:
    record = scene.made("state")
    raw = scene.state(record).read_bytes()
    scene.state(record).write_bytes(raw[:cut])
    refused_and_begun_anew(scene, record, ProfileDamaged)


def test_a_missing_file(scene: ProfileScene) -> None:
    record = scene.made("state")
    scene.state(record).unlink()
    refused_and_begun_anew(scene, record, ProfileDamaged)


@pytest.mark.parametrize("what", ["link", "folder", "pipe"])
@pytest.mark.parametrize("where", ["state", REGISTRY])
def test_something_else_in_a_files_place(scene: ProfileScene, what: str, where: str) -> None:
    record = scene.made("state")
    place = scene.state(record) if where == "state" else scene.folder / where
    place.rename(scene.folder.parent / "moved")
    match what:
        case "link":
            place.symlink_to(scene.folder.parent / "moved")
        case "folder":
            place.mkdir()
        case "pipe":
            os.mkfifo(place)
    if where == "state":
        refused_and_begun_anew(scene, record, ProfileDamaged)
    else:
        assert scene.content(ANNA, record.profile_id) == "state"


def test_swapped_files_of_two_principals(scene: ProfileScene) -> None:
    """Same revision, same key, same daemon: only whose it is differs."""
    hers, his = scene.made("hers"), scene.made("his", principal=BEN)
    one, two = scene.state(hers), scene.state(his)
    kept = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(kept)
    with scene.store() as store, pytest.raises(ProfileDamaged):
        store.load(BEN, his.profile_id)
    refused_and_begun_anew(scene, hers, ProfileDamaged)


def test_swapped_files_of_one_principal(scene: ProfileScene) -> None:
    bank, games = scene.made("bank", name="bank"), scene.made("games", name="games")
    scene.state(games).replace(scene.state(bank))
    refused_and_begun_anew(scene, bank, ProfileDamaged)


def test_an_older_revision_under_the_new_name(scene: ProfileScene) -> None:
    before = scene.made("before the password was changed")
    older = scene.state(before).read_bytes()
    with scene.store() as store:
        after = store.save(ANNA, before.profile_id, snapshot("after"), based_on=1)
    scene.state(after).write_bytes(older)
    refused_and_begun_anew(scene, after, ProfileRolledBack)


def test_an_older_registry_beside_newer_states(scene: ProfileScene) -> None:
    record = scene.made("one")
    older = (scene.folder / REGISTRY).read_bytes()
    with scene.store() as store:
        for revision in (1, 2):
            store.save(ANNA, record.profile_id, snapshot("newer"), based_on=revision)
    for name in BOTH:
        (scene.folder / name).write_bytes(older)
    with scene.store() as store:
        assert Found.ROLLED_BACK in [finding.found for finding in store.findings]
    assert f"{record.profile_id}.3.enc" in scene.aside()
    refused_and_begun_anew(scene, record, ProfileRolledBack)


def test_a_state_from_before_a_reset_never_fits_again(scene: ProfileScene) -> None:
    record = scene.made("logged in")
    old = scene.state(record).read_bytes()
    with scene.store() as store:
        after = store.reset(ANNA, record.profile_id)
    for revision in (record.revision, after.revision, after.revision + 1):
        (scene.folder / f"{record.profile_id}.{revision}.enc").write_bytes(old)
    with scene.store() as store:
        assert store.load(ANNA, record.profile_id) is None
    # The one that the reset removed is removed again; the others are evidence.
    assert len(scene.aside()) == 2


def test_an_older_copy_of_the_whole_folder_whose_number_was_driven_up(scene: ProfileScene) -> None:
    """Whoever can write the folder can have the daemon write the registry again, as often as they like."""
    scene.made("logged in")
    older = shutil.copytree(scene.folder, scene.folder.parent / "older")
    with scene.store() as store:
        (record,) = store.profiles(ANNA)
        store.reset(ANNA, record.profile_id)
        heard = store.head
    shutil.rmtree(scene.folder)
    shutil.copytree(older, scene.folder)
    for _ in range(heard.generation):
        (scene.folder / COPY).unlink()
        with scene.store() as store:
            found = store.head
    assert found.generation > heard.generation
    with scene.store() as store:
        assert store.expect(heard).rolled_back
        with pytest.raises(ProfilesFolderRolledBack):
            store.load(ANNA, record.profile_id)


def test_a_deleted_profile_does_not_come_back(scene: ProfileScene) -> None:
    record = scene.made("state")
    old = scene.state(record).read_bytes()
    with scene.store() as store:
        store.delete(ANNA, record.profile_id)
    scene.state(record).write_bytes(old)
    with scene.store() as store:
        assert store.profiles(ANNA) == []


def test_a_wrong_key_changes_nothing(scene: ProfileScene) -> None:
    record = scene.made("state")
    before = {path: path.read_bytes() for path in scene.folder.rglob("*") if path.is_file()}
    with pytest.raises(ProfileKeyMissing), scene.store(OTHER):
        pass
    assert {path: path.read_bytes() for path in scene.folder.rglob("*") if path.is_file()} == before
    assert scene.content(ANNA, record.profile_id) == "state"


def test_a_lost_key_is_not_the_end(scene: ProfileScene) -> None:
    scene.made("state")
    scene.folder.rename(scene.folder.with_name("sealed"))
    with scene.store(OTHER) as store:
        store.create(ANNA, "work")


def test_a_key_that_only_one_state_needs(scene: ProfileScene) -> None:
    """A rotation that stopped half way, and then the old key was thrown away."""
    record = scene.made("under the old key")
    with scene.store(NEW, OLD) as store:
        store.create(ANNA, "new")
    with scene.store(NEW) as store:
        with pytest.raises(ProfileKeyMissing):
            store.load(ANNA, record.profile_id)
        with pytest.raises(ProfileKeyMissing):
            store.rotate()
    assert scene.content(ANNA, record.profile_id, NEW, OLD) == "under the old key"


def test_a_damaged_state_does_not_stop_a_rotation(scene: ProfileScene) -> None:
    bad, good = scene.made("bad", name="bad"), scene.made("good", name="good")
    scene.state(bad).write_bytes(b"PALYRABP")
    with scene.store(NEW, OLD) as store:
        done = store.rotate()
    assert (done.sealed, done.damaged) == ((good.profile_id,), (bad.profile_id,))
    assert scene.content(ANNA, good.profile_id, NEW) == "good"


def test_a_folder_open_to_others_is_refused(scene: ProfileScene) -> None:
    scene.made("state")
    os.chmod(scene.folder, 0o755)
    with pytest.raises(ProfilesUnusable), scene.store():
        pass


@pytest.mark.parametrize("what", ["save", "delete", "reset", "rotate"])
def test_killed_before_every_step(tmp_path: Path, what: str) -> None:
    """The state is the one before or the one after, and everything else is as it was."""
    template, target = tmp_path / "template", tmp_path / "target"
    scene = ProfileScene(template)
    record, other = scene.made("before"), scene.made("his", principal=BEN)
    with scene.store() as store:
        heard = store.head
    command = [sys.executable, profile_scene.__file__, str(template), str(target), what, record.profile_id]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(command, env=environment, check=True, timeout=120)
    folders = list(target.iterdir())
    assert len(folders) > 5
    for folder in folders:
        with ProfileScene(folder).store(NEW, OLD) as store:
            assert not store.expect(heard).rolled_back
    contents = {_after_a_death(ProfileScene(folder), record.profile_id, other.profile_id) for folder in folders}
    expected = {"save": {"before", "after"}, "rotate": {"before"}}
    assert contents == expected.get(what, {"before", None})


def _after_a_death(scene: ProfileScene, profile_id: str, other_id: str) -> str | None:
    """What the state was. The folder works on, with nothing left over and nothing lost."""
    with scene.store(NEW, OLD) as store:
        assert store.load(BEN, other_id) == snapshot("his")
        there = bool(store.profiles(ANNA))
        state = store.load(ANNA, profile_id) if there else None
        if there:
            now = store.get(ANNA, profile_id).revision
            store.save(ANNA, profile_id, snapshot("next"), based_on=now)
        store.rotate()
    assert len(scene.names()) == len(BOTH) + 1 + there
    assert not any(name.endswith(".new") for name in scene.names())
    assert scene.aside() == []
    assert scene.content(BEN, other_id, NEW) == "his"
    assert not there or scene.content(ANNA, profile_id, NEW) == "next"
    return None if state is None else state.archive.decode()
