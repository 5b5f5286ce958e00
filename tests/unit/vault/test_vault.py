import asyncio

import pytest

from fakes.vault_harness import NOTE, VaultHarness, ref
from palyra.secret import REDACTED, Secret
from palyra.vault import vault as module
from palyra.vault.key_source import BadValue, KeyMissing, NoSuchSecret, NoSuchVersion, TooManySecrets, ValueTooLarge
from palyra.vault.limits import MAX_VALUE_BYTES, MAX_VERSIONS_KEPT
from palyra.vault.reference import SecretScope, UseNote

K = ref("global/k")


async def test_a_value_comes_back_in_another_process_too(harness: VaultHarness) -> None:
    info = await harness.vault().put(K, Secret("välue\nof two lines"), actor="user:a")
    assert (info.version, info.oldest_version, info.updated_by) == (1, 1, "user:a")
    assert (await harness.vault().reveal(K, note=NOTE)).reveal() == "välue\nof two lines"


async def test_nothing_is_made_or_read_before_the_first_secret(harness: VaultHarness) -> None:
    vault = harness.vault()
    assert vault.list() == [] and (await vault.status()).secrets == 0
    with pytest.raises(NoSuchSecret):
        await vault.reveal(K, note=NOTE)
    with pytest.raises(NoSuchSecret):
        await vault.delete(K, actor="a")
    with pytest.raises(NoSuchSecret):
        await vault.rotate(actor="a")
    assert not harness.key_file.exists() and harness.events() == []


async def test_versions_are_kept_up_to_the_limit(harness: VaultHarness) -> None:
    vault = harness.vault()
    for number in range(1, MAX_VERSIONS_KEPT + 3):
        info = await vault.put(K, Secret(f"value {number}"), actor="a")
    assert (info.version, info.oldest_version) == (10, 3)
    assert (await vault.reveal(K, note=NOTE)).reveal() == "value 10"
    assert (await vault.reveal(K, version=3, note=NOTE)).reveal() == "value 3"
    for gone in (0, 1, 2, 11):
        with pytest.raises(NoSuchVersion):
            await vault.reveal(K, version=gone, note=NOTE)
    assert harness.open_store().read("SELECT MIN(version), COUNT(*) FROM vault_versions") == [(3, MAX_VERSIONS_KEPT)]


async def test_deleting_destroys_all_and_numbers_go_on(harness: VaultHarness) -> None:
    vault = await harness.filled({"global/k": "one", "global/l": "other"})
    await vault.delete(K, actor="a")
    assert harness.open_store().read("SELECT scope, key FROM vault_versions") == [("global", "l")]
    for attempt in (vault.reveal(K, note=NOTE), vault.delete(K, actor="a")):
        with pytest.raises(NoSuchSecret):
            await attempt
    info = await vault.put(K, Secret("again"), actor="b")
    assert (info.version, info.oldest_version) == (2, 2)
    with pytest.raises(NoSuchVersion):
        await vault.reveal(K, version=1, note=NOTE)
    assert (await vault.status()).secrets == 2


async def test_the_list_is_in_order_by_scope_and_by_page(harness: VaultHarness) -> None:
    vault = await harness.filled(dict.fromkeys(("skill:s/a", "global/b", "global/a", "channel:c/z"), "x"))
    assert [str(info.ref) for info in vault.list()] == ["channel:c/z", "global/a", "global/b", "skill:s/a"]
    assert [str(info.ref) for info in vault.list(SecretScope.parse("global"))] == ["global/a", "global/b"]
    page = vault.list(limit=2)
    assert [str(info.ref) for info in vault.list(after=page[-1].ref)] == ["global/b", "skill:s/a"]


@pytest.mark.promise("P-limits")
@pytest.mark.parametrize(
    ("value", "error"), [("", BadValue), ("\ud800", BadValue), ("x" * (MAX_VALUE_BYTES + 1), ValueTooLarge)]
)
async def test_what_is_no_value_is_refused(harness: VaultHarness, value: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        await harness.vault().put(K, Secret(value), actor="a")
    assert not harness.key_file.exists()


async def test_the_largest_value_fits(harness: VaultHarness) -> None:
    vault = await harness.filled({"global/k": "ü" * (MAX_VALUE_BYTES // 2)})
    assert len((await vault.reveal(K, note=NOTE)).reveal()) == MAX_VALUE_BYTES // 2


async def test_a_full_vault_takes_new_versions_and_no_new_secrets(
    harness: VaultHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SECRETS", 2)
    vault = await harness.filled({"global/a": "1", "global/b": "2"})
    with pytest.raises(TooManySecrets):
        await vault.put(K, Secret("3"), actor="a")
    await vault.put(ref("global/a"), Secret("4"), actor="a")
    await vault.delete(ref("global/b"), actor="a")
    await vault.put(K, Secret("3"), actor="a")
    with pytest.raises(TooManySecrets):
        await vault.put(ref("global/b"), Secret("again"), actor="a")


async def test_every_use_is_on_record_and_no_value_is(harness: VaultHarness) -> None:
    vault = await harness.filled({"global/k": "s3cret-value"})
    note = UseNote(actor="palyrad", principal="agent:bot", run="R", call="C", tool="http.fetch", host="h:443")
    await vault.reveal(K, note=note)
    (event,) = harness.open_store().events_since(0, 10, kind="vault.secret_used")
    assert (event.actor, event.principal, event.run, event.call) == ("palyrad", "agent:bot", "R", "C")
    assert event.payload_value() == {
        "ref": "global/k", "version": 1, "purpose": "use", "channel": "", "tool": "http.fetch", "skill": "",
        "host": "h:443", "policies": [], "bundle_digest": "",
    }  # fmt: skip
    assert [kind for kind, _ in harness.events()] == ["vault.created", "vault.secret_put", "vault.secret_used"]


async def test_values_become_known_to_the_redactor_when_put_and_when_revealed(harness: VaultHarness) -> None:
    await harness.filled({"global/k": "s3cret-value"})
    assert harness.journal.redactor.text("a s3cret-value b") == f"a {REDACTED} b"
    learned: list[Secret] = []
    later = harness.vault(learn=learned.append)
    assert learned == []
    await later.reveal(K, note=NOTE)
    assert learned == [Secret("s3cret-value")]


async def test_two_processes_that_begin_at_once_make_one_vault(harness: VaultHarness) -> None:
    vaults = [harness.vault() for _ in range(4)]
    await asyncio.gather(*(one.put(ref(f"global/k{n}"), Secret(f"v{n}"), actor="a") for n, one in enumerate(vaults)))
    assert [kind for kind, _ in harness.events("vault.created")] == ["vault.created"]
    for number in range(4):
        assert (await harness.vault().reveal(ref(f"global/k{number}"), note=NOTE)).reveal() == f"v{number}"
    assert harness.key_file.read_text().count('"id"') == 1


async def test_many_that_put_the_same_secret_each_get_a_version(harness: VaultHarness) -> None:
    vaults = [harness.vault() for _ in range(3)]
    infos = await asyncio.gather(*(vaults[number % 3].put(K, Secret(f"v{number}"), actor="a") for number in range(30)))
    assert sorted(info.version for info in infos) == list(range(1, 31))


async def test_without_its_key_the_vault_says_which_one_is_missing(harness: VaultHarness) -> None:
    await harness.filled({"global/k": "x"})
    harness.key_file.unlink()
    with pytest.raises(KeyMissing) as caught:
        await harness.vault().reveal(K, note=NOTE)
    assert caught.value.details["key_id"].startswith("kek:")
    with pytest.raises(KeyMissing):
        await harness.vault().put(K, Secret("y"), actor="a")


async def test_a_key_in_an_unknown_place_is_missing(harness: VaultHarness) -> None:
    with pytest.raises(KeyMissing):
        await harness.vault(source="moon").put(K, Secret("x"), actor="a")
