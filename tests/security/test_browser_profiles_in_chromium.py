"""What stays of a login in a real Chromium behind its fences: in a profile, a private one, for another principal."""

import asyncio
import json
from pathlib import Path

import pytest

from fakes.browser_engine import Guarded, attach, evaluate, launching, load
from fakes.egress_harness import server
from fakes.persistent_chromium import LOGGED_IN, LOOK, STORE, STRANGER, chromium, log_in, shop
from fakes.profile_harness import ANNA, BEN, ProfileHarness
from palyra.browser.domain.profile import NoSuchProfile, NotPersistent, PersistedSessionSnapshot
from palyra.browser.engine.chromium import ChromiumLauncher
from palyra.browser.profiles.archive import pack, unpack
from palyra.browser.profiles.storage_state import read_storage_state, write_storage_state

pytestmark = pytest.mark.promise("P-browser-profile")

SHOP = "shop.test"


async def _site(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while head := await reader.readuntil(b"\r\n\r\n"):
        lines = head.decode("latin-1").split("\r\n")
        cookie = next((line[8:] for line in lines if line.lower().startswith("cookie: ")), "stranger")
        sent = "Set-Cookie: sid=s3cret; Max-Age=9999; HttpOnly\r\n" if " /login " in lines[0] else ""
        body = f"<p>{cookie}".encode()
        head_sent = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{sent}Content-Length: {len(body)}\r\n\r\n"
        writer.write(head_sent.encode() + body)
        await writer.drain()


async def visit(
    launcher: ChromiumLauncher, port: int, archive: bytes | None = None, *, log_in: bool = False
) -> tuple[list[str | None], bytes]:
    """One session: with the state of an archive, perhaps with a login. What the page saw, and the state after it."""
    process = await launcher.start(None if archive is None else lambda folder: unpack(archive, folder))
    guarded = Guarded({SHOP: ("127.0.0.1",)}, f"{SHOP}:{port}")
    guarded.serve(process)
    kept: list[bytes] = []

    async def keep(folder: Path) -> None:
        kept.append(await asyncio.to_thread(pack, folder))

    try:
        session = await attach(process)
        if log_in:
            await load(process, session, f"http://{SHOP}:{port}/login")
            await evaluate(process, session, f"({STORE})()")
        await load(process, session, f"http://{SHOP}:{port}/")
        seen = await evaluate(process, session, f"({LOOK})()")
    finally:
        clean = await process.close(graceful=True, archive=keep)
        await guarded.close()
    assert clean
    return seen, kept[0]


async def test_a_login_stays_in_its_profile_and_nowhere_else(tmp_path: Path) -> None:
    harness = ProfileHarness(tmp_path)
    async with server(_site) as port, launching(tmp_path / "notes") as launcher:
        seen, archive = await visit(launcher, port, log_in=True)
        assert seen == LOGGED_IN
        with harness.store() as store:
            record = store.create(ANNA, "work")
            store.save(ANNA, record.profile_id, PersistedSessionSnapshot(archive=archive), based_on=0)
            private = store.create(ANNA, "private", persistence=False, private=True)
            with pytest.raises(NotPersistent):
                store.save(ANNA, private.profile_id, PersistedSessionSnapshot(archive=archive), based_on=0)
        with harness.store() as store:
            kept = store.load(ANNA, record.profile_id)
            assert kept is not None
            assert store.load(ANNA, private.profile_id) is None
            with pytest.raises(NoSuchProfile):
                store.load(BEN, record.profile_id)
        seen, archive = await visit(launcher, port, kept.archive)
        assert seen == LOGGED_IN
        # And once more from what the second session left.
        assert (await visit(launcher, port, archive))[0] == LOGGED_IN
        assert (await visit(launcher, port))[0] == STRANGER
    everything = b"".join(path.read_bytes() for path in harness.folder.rglob("*") if path.is_file())
    assert b"s3cret" not in everything and b"SQLite format" not in everything


def test_a_storage_state_of_playwrights_is_read_and_written_as_it_was(tmp_path: Path) -> None:
    with shop() as address, chromium(tmp_path / "data") as context:
        log_in(context, address)
        written, with_databases = context.storage_state(), context.storage_state(indexed_db=True)
    state = read_storage_state(json.dumps(written).encode())
    assert json.loads(write_storage_state(state)) == written
    assert state.cookies[0].value.reveal() == "s3cret"
    assert read_storage_state(json.dumps(with_databases).encode()).left_out == (state.origins[0].origin,)
