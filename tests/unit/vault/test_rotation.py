import asyncio
from typing import Any

import pytest

from fakes.vault_harness import NOTE, DictKeyring, VaultHarness, ref
from palyra.secret import Secret
from palyra.vault import rotation as module
from palyra.vault.key_file import KeyFile
from palyra.vault.key_source import OsKeyring, VaultTampered

NAMES = [f"global/k{number}" for number in range(10)]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REWRAP_BATCH", 3)


async def filled(harness: VaultHarness) -> Any:
    return await harness.filled({name: f"value of {name}" for name in NAMES})


async def readable(harness: VaultHarness, vault: Any = None) -> None:
    vault = vault or harness.vault()
    for name in NAMES:
        assert (await vault.reveal(ref(name), note=NOTE)).reveal() == f"value of {name}"


async def test_everything_is_under_the_new_key_and_the_old_one_is_gone(harness: VaultHarness) -> None:
    vault = await filled(harness)
    await vault.put(ref(NAMES[0]), Secret("newer"), actor="a")
    report = await vault.rotate(actor="user:operator")
    assert (report.rewrapped, report.resumed, report.key_source) == (11, False, "file")
    assert harness.open_store().read("SELECT DISTINCT key_id FROM vault_versions") == [(report.key_id,)]
    assert report.previous_key_id not in harness.key_file.read_text() and report.key_id in harness.key_file.read_text()
    assert harness.open_store().read(
        "SELECT state, index_key FROM vault_keys WHERE key_id = ?", (report.previous_key_id,)
    ) == [("forgotten", b"")]
    assert (await harness.vault().reveal(ref(NAMES[0]), version=1, note=NOTE)).reveal() == f"value of {NAMES[0]}"
    assert [kind for kind, _ in harness.events()][-3:-1] == ["vault.rotation_started", "vault.rotated"]


async def test_a_key_may_move_to_another_place(harness: VaultHarness) -> None:
    await filled(harness)
    package = DictKeyring()
    places = (KeyFile(harness.key_file, harness.state), OsKeyring(lambda: package))
    report = await harness.vault(*places, source="keyring").rotate(actor="a")
    assert report.key_source == "keyring" and len(package.kept) == 1
    await readable(harness, harness.vault(*places))
    back = await harness.vault(*places, source="keyring").rotate("file", actor="a")
    assert back.key_source == "file" and package.kept == {}


class CutOffError(Exception):
    """The process dies here."""


class DyingStore:
    """A store whose process dies after, or in the middle of, its nth transaction of this life."""

    def __init__(self, inner: Any, lives: int, *, undone: bool) -> None:
        self._inner, self._lives, self._undone = inner, lives, undone

    def read(self, *arguments: Any) -> Any:
        return self._inner.read(*arguments)

    async def transact(self, work: Any, *, essential: bool = False) -> Any:
        self._lives -= 1
        if self._lives >= 0:
            return await self._inner.transact(work, essential=essential)

        def cut(tx: Any) -> Any:
            work(tx)
            raise CutOffError

        if self._lives < -1:
            raise CutOffError
        if not self._undone:
            await self._inner.transact(work, essential=essential)
            raise CutOffError
        return await self._inner.transact(cut, essential=essential)


@pytest.mark.promise("P-vault-sealed")
@pytest.mark.parametrize("undone", [True, False], ids=["in a transaction", "after it"])
async def test_cut_off_at_any_point_everything_opens_and_the_next_rotation_ends_it(
    harness: VaultHarness, undone: bool
) -> None:
    await filled(harness)
    store = harness.open_store()
    finished = 0
    for lives in range(14):
        vault = harness.vault()
        vault._store = DyingStore(store, lives, undone=undone)
        try:
            await vault.rotate(actor="a")
            finished += 1
        except CutOffError:
            pass
        await readable(harness)
        await harness.vault().put(ref(NAMES[3]), Secret(f"value of {NAMES[3]}"), actor="a")
    assert finished >= 1
    await harness.vault().rotate(actor="a")
    status = await harness.vault().status()
    assert (status.rotating_from, status.waiting) == ("", 0)
    await harness.vault().rotate(actor="a")
    await readable(harness)


async def test_a_rotation_that_was_cut_off_is_resumed_with_its_own_key(harness: VaultHarness) -> None:
    await filled(harness)
    vault = harness.vault()
    vault._store = DyingStore(harness.open_store(), 4, undone=False)
    with pytest.raises(CutOffError):
        await vault.rotate(actor="a")
    status = await harness.vault().status()
    assert status.rotating_from and 0 < status.waiting < 10
    report = await harness.vault().rotate(actor="a")
    assert report.resumed and report.key_id == status.key_id and report.rewrapped == status.waiting


async def test_two_rotations_at_once_are_one(harness: VaultHarness) -> None:
    await filled(harness)
    reports = await asyncio.gather(*(harness.vault().rotate(actor="a") for _ in range(3)))
    started = harness.events("vault.rotation_started")
    assert len(started) == len(harness.events("vault.rotated")) <= 3
    assert sum(report.rewrapped for report in reports) == 10 * len(started)
    await readable(harness)


async def test_a_rotation_that_another_began_and_ended_meanwhile_is_that_one(harness: VaultHarness) -> None:
    """Not a vault whose key is gone."""
    await filled(harness)
    loop = asyncio.get_running_loop()
    theirs: list[Any] = []

    class SlowKeyFile(KeyFile):
        def create(self, known: Any) -> Any:
            other = asyncio.run_coroutine_threadsafe(harness.vault().rotate(actor="b"), loop)
            theirs.append(other.result(60))
            return super().create(known)

    report = await harness.vault(SlowKeyFile(harness.key_file, harness.state)).rotate(actor="a")
    assert (report.key_id, report.previous_key_id) == (theirs[0].key_id, theirs[0].previous_key_id)
    assert (report.rewrapped, theirs[0].rewrapped) == (0, 10)
    assert len(harness.events("vault.rotated")) == 1
    await readable(harness)


async def test_secrets_are_used_and_put_all_the_while(harness: VaultHarness) -> None:
    await filled(harness)
    ended = asyncio.Event()

    async def work(vault: Any) -> int:
        turns = 0
        while not ended.is_set() or turns < 3:
            await readable(harness, vault)
            await vault.put(ref("global/more"), Secret(f"turn {turns}"), actor="a")
            turns += 1
        return turns

    async def rotate() -> None:
        for _ in range(5):
            await harness.vault().rotate(actor="a")
        ended.set()

    *turns, _ = await asyncio.gather(work(harness.vault()), work(harness.vault()), rotate())
    assert min(turns) >= 3


async def test_what_does_not_open_keeps_the_old_key_until_it_is_dealt_with(harness: VaultHarness) -> None:
    vault = await filled(harness)
    await harness.open_store().transact(
        lambda tx: tx.execute("UPDATE vault_versions SET wrapped = zeroblob(61) WHERE key = 'k4'")
    )
    with pytest.raises(VaultTampered, match="global/k4 version 1"):
        await vault.rotate(actor="a")
    status = await vault.status()
    assert (status.waiting, bool(status.rotating_from)) == (1, True)
    assert harness.events("vault.tamper_found")
    await vault.delete(ref("global/k4"), actor="a")
    report = await vault.rotate(actor="a")
    assert report.resumed and (await vault.status()).rotating_from == ""
