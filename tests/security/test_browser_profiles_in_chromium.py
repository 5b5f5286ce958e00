"""What stays of a login in a real Chromium: in a profile, a private one, for another principal, and as a document."""

import json
from pathlib import Path

import pytest

from fakes.persistent_chromium import CHROMIUM, LOGGED_IN, STRANGER, chromium, log_in, seen, shop
from fakes.profile_scene import ANNA, BEN, ProfileScene
from palyra.browser.profile_archive import pack, unpack
from palyra.browser.profile_errors import NoSuchProfile, NotPersistent
from palyra.browser.profile_record import PersistedSessionSnapshot
from palyra.browser.storage_state import read_storage_state, write_storage_state

pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Debian's chromium-headless-shell")


def directory(tmp_path: Path, name: str) -> Path:
    place = tmp_path / name
    place.mkdir(mode=0o700)
    return place


def test_a_login_stays_in_its_profile_and_nowhere_else(tmp_path: Path) -> None:
    scene = ProfileScene(tmp_path)
    first, again, other = (directory(tmp_path, name) for name in ("first", "again", "other"))
    with shop() as address:
        with chromium(first) as context:
            log_in(context, address)
            assert seen(context, address) == LOGGED_IN
        with scene.store() as store:
            record = store.create(ANNA, "work")
            store.save(ANNA, record.profile_id, PersistedSessionSnapshot(archive=pack(first).archive), based_on=0)
            private = store.create(ANNA, "private", persistence=False, private=True)
            with pytest.raises(NotPersistent):
                store.save(ANNA, private.profile_id, PersistedSessionSnapshot(archive=pack(first).archive), based_on=0)
        with scene.store() as store:
            kept = store.load(ANNA, record.profile_id)
            assert kept is not None
            assert store.load(ANNA, private.profile_id) is None
            with pytest.raises(NoSuchProfile):
                store.load(BEN, record.profile_id)
        unpack(kept.archive, again)
        with chromium(again) as context:
            assert seen(context, address) == LOGGED_IN
        with chromium(other) as context:
            assert seen(context, address) == STRANGER
    everything = b"".join(path.read_bytes() for path in scene.folder.rglob("*") if path.is_file())
    assert b"s3cret" not in everything and b"SQLite format" not in everything


def test_a_storage_state_of_playwrights_is_read_and_written_as_it_was(tmp_path: Path) -> None:
    with shop() as address, chromium(directory(tmp_path, "first")) as context:
        log_in(context, address)
        written, with_databases = context.storage_state(), context.storage_state(indexed_db=True)
    state = read_storage_state(json.dumps(written).encode())
    assert json.loads(write_storage_state(state)) == written
    assert state.cookies[0].value.reveal() == "s3cret"
    assert read_storage_state(json.dumps(with_databases).encode()).left_out == (state.origins[0].origin,)
