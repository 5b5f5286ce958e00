"""Attacks on the vault by somebody who can write its database, read its files, or speak to its API, and has no key."""

import base64
import json
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fakes.daemon import Place
from fakes.gateway_harness import open_harness
from fakes.raw_http import ask, make_token, operator
from fakes.vault_harness import NOTE, VaultHarness, ref
from palyra.errors import PalyraError
from palyra.identity.api_tokens import TokenScope
from palyra.ids import Principal
from palyra.secret import Secret
from palyra.server.http.app import create_app
from palyra.vault.access import SecretUse
from palyra.vault.key_file import KeyFile
from palyra.vault.key_source import KeyMissing, KeyUnsafe, NoSuchSecret, NoSuchVersion, ScopeDenied, VaultTampered
from palyra.vault.reference import SecretRef

pytestmark = pytest.mark.promise("P-vault-sealed")

VALUE = "gh0-S3cret-Value/42+x"
A, B = ref("global/a"), ref("global/b")


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[VaultHarness]:
    harness = VaultHarness(tmp_path)
    yield harness
    harness.close()


async def two_versions(harness: VaultHarness) -> None:
    vault = await harness.filled({"global/a": "a one", "global/b": "b one", "principal:agent:bot/a": "bot's"})
    await vault.put(A, Secret("a two"), actor="user:operator")


def attack(harness: VaultHarness, *statements: str, **values: Any) -> None:
    """Another program with the database open, which knows SQL and no key."""
    with closing(sqlite3.connect(harness.database)) as connection, connection:
        for statement in statements:
            connection.execute(statement, {name: values[name] for name in values if f":{name}" in statement})
    connection.close()


def rows(harness: VaultHarness, query: str) -> list[tuple[Any, ...]]:
    return harness.open_store().read(query)


async def refused(harness: VaultHarness, *refs: SecretRef, version: int | None = None) -> None:
    """Refused by a process that knew the vault before and by one that comes new to it, and on record."""
    for secret in refs or (A,):
        recorded = len(harness.events("vault.tamper_found"))
        with pytest.raises(VaultTampered) as caught:
            await harness.vault().reveal(secret, version=version, note=NOTE)
        assert caught.value.code == "vault.tampered"
        assert len(harness.events("vault.tamper_found")) == recorded + 1


# One changed bit, anywhere.

COLUMNS = {
    "vault_versions": ("wrapped", "sealed"),
    "vault_secrets": ("tag",),
    "vault_state": ("tag", "buckets"),
    "vault_keys": ("index_key",),
}


@pytest.mark.parametrize("table, column", [(table, column) for table in COLUMNS for column in COLUMNS[table]])
async def test_a_flipped_bit_is_found(harness: VaultHarness, table: str, column: str) -> None:
    await two_versions(harness)
    where = "WHERE scope = 'global' AND key = 'a'" if table in ("vault_versions", "vault_secrets") else ""
    if table == "vault_versions":
        where += " AND version = 2"
    ((whole,),) = rows(harness, f"SELECT {column} FROM {table} {where}")
    size = len(whole)
    # The nonce, the first and the last byte of the ciphertext, the tag: each class once. The first byte is the format.
    places = sorted({1, 12, 13, size // 2, size - 17, size - 16, size - 1} & set(range(1, size)))
    if table == "vault_state":
        places = places if column == "tag" else [0, size // 2, size - 1]
    for at in places:
        changed = bytearray(whole)
        changed[at] ^= 0x10
        attack(harness, f"UPDATE {table} SET {column} = :new {where}", new=bytes(changed))
        await refused(harness)
    attack(harness, f"UPDATE {table} SET {column} = :new {where}", new=whole)
    assert (await harness.vault().reveal(A, note=NOTE)).reveal() == "a two"


@pytest.mark.parametrize(
    "change",
    ["vault_secrets SET current = 1", "vault_secrets SET oldest = 2", "vault_secrets SET live = 0",
     "vault_secrets SET updated_by = 'user:evil'", "vault_secrets SET created_ms = 1",
     "vault_secrets SET bucket = 255 - bucket",
     "vault_state SET seq = seq + 1", "vault_state SET seq = seq + 1000", "vault_state SET revision = 0",
     "vault_state SET live = 0", "vault_state SET active_key = 'kek:evil'", "vault_state SET previous_key = active_key",
     "vault_state SET vault_id = 'other'", "vault_versions SET key_id = 'kek:evil'",
     "vault_versions SET version = version + 10",
     "vault_versions SET wrapped = x''", "vault_versions SET sealed = substr(sealed, 1, 20)",
     "vault_keys SET index_key = x''", "vault_keys SET state = 'retired'", "vault_keys SET key_id = 'kek:evil'"],
)  # fmt: skip
async def test_a_changed_field_is_found(harness: VaultHarness, change: str) -> None:
    await two_versions(harness)
    attack(harness, f"UPDATE OR REPLACE {change}")
    await refused(harness)


@pytest.mark.parametrize("table", ["vault_state", "vault_keys", "vault_secrets", "vault_versions"])
async def test_removed_rows_are_missed(harness: VaultHarness, table: str) -> None:
    await two_versions(harness)
    attack(harness, f"DELETE FROM {table}")
    await refused(harness)
    if table != "vault_versions":
        with pytest.raises(VaultTampered):
            await harness.vault().put(A, Secret("new"), actor="a")


# Records moved.


async def test_records_cannot_be_swapped_between_secrets_scopes_or_versions(harness: VaultHarness) -> None:
    await two_versions(harness)
    for one, other, asked in (
        (("global", "a", 2), ("global", "b", 1), (A, B)),
        (("global", "a", 2), ("principal:agent:bot", "a", 1), (A, ref("principal:agent:bot/a"))),
        (("global", "a", 1), ("global", "a", 2), (A,)),
    ):
        before = rows(harness, "SELECT scope, key, version, wrapped, sealed FROM vault_versions")
        content = {row[:3]: row[3:] for row in before}
        for target, source in ((one, other), (other, one)):
            attack(
                harness,
                "UPDATE vault_versions SET wrapped = :w, sealed = :s WHERE scope = :c AND key = :k AND version = :v",
                w=content[source][0], s=content[source][1], c=target[0], k=target[1], v=target[2],
            )  # fmt: skip
        await refused(harness, *asked)
        for (scope, key, version), (wrapped, sealed) in content.items():
            attack(
                harness,
                "UPDATE vault_versions SET wrapped = :w, sealed = :s WHERE scope = :c AND key = :k AND version = :v",
                w=wrapped, s=sealed, c=scope, k=key, v=version,
            )  # fmt: skip
        assert (await harness.vault().reveal(A, note=NOTE)).reveal() == "a two"


async def test_heads_cannot_be_swapped_or_copied(harness: VaultHarness) -> None:
    await two_versions(harness)
    attack(
        harness,
        "UPDATE vault_secrets SET tag = (SELECT tag FROM vault_secrets WHERE key = 'b'), current = 1, oldest = 1"
        " WHERE scope = 'global' AND key = 'a'",
    )
    await refused(harness)


async def test_a_record_of_another_vault_with_the_same_key_does_not_open(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = VaultHarness(tmp_path / "one"), VaultHarness(tmp_path / "two")
    key = KeyFile(one.key_file, tmp_path / "one" / "state")
    try:
        await one.vault(key).put(A, Secret("one's"), actor="a")

        class SameKey(KeyFile):
            """A person who uses one key for two vaults."""

            def create(self, known: Any) -> Any:
                from palyra.vault.key_source import KeyEncryptionKey, KeyRecord

                raw = base64.b64decode(json.loads(one.key_file.read_bytes())["keys"][0]["key"])
                held = KeyEncryptionKey(raw)
                return KeyRecord(key_id=held.key_id, source="file"), held

        same = SameKey(one.key_file, two.state)
        await two.vault(same).put(A, Secret("two's"), actor="a")
        ((wrapped, sealed),) = rows(one, "SELECT wrapped, sealed FROM vault_versions")
        attack(two, "UPDATE vault_versions SET wrapped = :w, sealed = :s", w=wrapped, s=sealed)
        with pytest.raises(VaultTampered):
            await two.vault(same).reveal(A, note=NOTE)
    finally:
        one.close()
        two.close()


# Rows from an older copy.


def copied(harness: VaultHarness) -> dict[str, list[tuple[Any, ...]]]:
    return {table: rows(harness, f"SELECT * FROM {table}") for table in COLUMNS}


def restore(harness: VaultHarness, old: dict[str, list[tuple[Any, ...]]], *tables: str) -> None:
    with closing(sqlite3.connect(harness.database)) as connection, connection:
        for table in tables:
            connection.execute(f"DELETE FROM {table}")
            for row in old[table]:
                connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    connection.close()


@pytest.mark.parametrize(
    "tables",
    [("vault_secrets",), ("vault_secrets", "vault_versions"), ("vault_state",), tuple(COLUMNS)],
    ids=lambda tables: "+".join(tables),
)
async def test_an_older_copy_put_back_is_found_however_much_of_it(
    harness: VaultHarness, tables: tuple[str, ...]
) -> None:
    vault = await harness.filled({"global/a": "leaked", "global/b": "b"})
    old = copied(harness)
    await vault.put(A, Secret("changed after the leak"), actor="user:operator")
    restore(harness, old, *tables)
    await refused(harness)
    # The process that wrote the newer one is not fooled either.
    with pytest.raises(VaultTampered):
        await vault.reveal(A, note=NOTE)


async def test_a_deleted_secret_does_not_come_back(harness: VaultHarness) -> None:
    vault = await harness.filled({"global/a": "old", "global/b": "b"})
    old = copied(harness)
    await vault.delete(A, actor="user:operator")
    restore(harness, old, "vault_versions")
    with pytest.raises(NoSuchSecret):
        await harness.vault().reveal(A, note=NOTE)
    await vault.put(A, Secret("new"), actor="user:operator")
    with pytest.raises(NoSuchVersion):
        await harness.vault().reveal(A, version=1, note=NOTE)
    restore(harness, old, "vault_secrets", "vault_versions")
    await refused(harness)


async def test_a_record_under_a_retired_key_is_refused_even_when_that_key_is_known(harness: VaultHarness) -> None:
    vault = await harness.filled({"global/a": "x"})
    old, old_keys = copied(harness), harness.key_file.read_bytes()
    await vault.rotate(actor="user:operator")
    restore(harness, old, "vault_versions")
    await refused(harness)
    # The old key is found in a backup and put back beside the new one.
    keys = json.loads(old_keys)["keys"] + json.loads(harness.key_file.read_bytes())["keys"]
    harness.key_file.write_text(json.dumps({"format": "palyra.vault.key-file/1", "keys": keys}))
    await refused(harness)
    restore(harness, old, "vault_versions", "vault_keys", "vault_state")
    await refused(harness)


async def test_the_journal_shows_a_rollback_that_took_its_entries_along(harness: VaultHarness) -> None:
    """Whoever also removes the journal's entries gets past the vault's own check, and not past the journal's."""
    from palyra.journal.verify import JournalTampered, newest_checkpoint, verify_journal

    vault = await harness.filled({"global/a": "leaked"})
    old = copied(harness)
    harness.open_store().seal()
    await vault.put(A, Secret("changed"), actor="user:operator")
    harness.open_store().seal()
    anchor = newest_checkpoint(harness.open_store())
    assert anchor is not None
    restore(harness, old, *COLUMNS)
    attack(
        harness,
        "DROP TRIGGER events_no_delete",
        "DROP TRIGGER checkpoints_no_delete",
        "DELETE FROM events WHERE seq > 2",
        "DELETE FROM checkpoints WHERE last_seq > 2",
    )
    with pytest.raises(JournalTampered):
        verify_journal(harness.open_store().reader, harness.journal.verifiers, anchors=[anchor])


# Keys.


async def test_a_wrong_key_opens_nothing_and_changes_nothing(harness: VaultHarness, tmp_path: Path) -> None:
    await harness.filled({"global/a": "x"})
    (tmp_path / "elsewhere").mkdir()
    other = VaultHarness(tmp_path / "elsewhere")
    await other.filled({"global/a": "y"})
    other.close()
    right = harness.key_file.read_bytes()
    shutil.copy(other.key_file, harness.key_file)
    for attempt in (harness.vault().reveal(A, note=NOTE), harness.vault().put(A, Secret("z"), actor="a"),
                    harness.vault().rotate(actor="a")):  # fmt: skip
        with pytest.raises(KeyMissing):
            await attempt
    harness.key_file.write_bytes(right)
    assert (await harness.vault().reveal(A, note=NOTE)).reveal() == "x"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o700 | 0o001])
async def test_a_key_file_that_others_may_touch_is_refused(harness: VaultHarness, mode: int) -> None:
    await harness.filled({"global/a": "x"})
    harness.key_file.chmod(mode)
    with pytest.raises(KeyUnsafe):
        await harness.vault().reveal(A, note=NOTE)


async def test_a_key_file_of_somebody_else_is_refused(harness: VaultHarness) -> None:
    await harness.filled({"global/a": "x"})
    if os.geteuid() == 0:
        os.chown(harness.key_file, 12345, 12345)
        with pytest.raises(KeyUnsafe, match="another user"):
            await harness.vault().reveal(A, note=NOTE)
        os.chown(harness.key_file, 0, 0)
        os.chown(harness.config, 12345, 12345)
    else:
        harness.config.chmod(0o777)
    with pytest.raises(KeyUnsafe):
        await harness.vault().rotate(actor="a")


async def test_links_are_refused(harness: VaultHarness, tmp_path: Path) -> None:
    await harness.filled({"global/a": "x"})
    real = harness.config / "real.key"
    harness.key_file.rename(real)
    harness.key_file.symlink_to(real)
    with pytest.raises(KeyUnsafe):
        await harness.vault().reveal(A, note=NOTE)
    harness.key_file.unlink()
    real.rename(harness.key_file)
    os.link(harness.key_file, harness.state / "innocent-name")
    with pytest.raises(KeyUnsafe, match="second name"):
        await harness.vault().reveal(A, note=NOTE)


@pytest.mark.parametrize("inside", ["vault.key", "sub/vault.key", "../state/vault.key", "sub/../vault.key"])
async def test_a_key_file_in_the_state_directory_is_refused_by_every_way_there(
    harness: VaultHarness, tmp_path: Path, inside: str
) -> None:
    (harness.state / "sub").mkdir()
    (tmp_path / "link").symlink_to(harness.state)
    for folder in (harness.state, tmp_path / "link"):
        with pytest.raises(KeyUnsafe, match="inside the state directory"):
            await harness.vault(KeyFile(folder / inside, harness.state)).put(A, Secret("x"), actor="a")
    assert rows(harness, "SELECT COUNT(*) FROM vault_state") == [(0,)]


# Values.


def spellings(value: str) -> list[bytes]:
    raw = value.encode()
    return [raw, raw.hex().encode(), base64.b64encode(raw)[:-4], json.dumps(value)[1:-1].encode()]


def holders(folder: Path, value: str) -> list[str]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    assert found
    return [path.name for path in found if any(one in path.read_bytes() for one in spellings(value))]


async def test_no_file_holds_a_value_after_every_operation(harness: VaultHarness, tmp_path: Path) -> None:
    vault = await harness.filled({"global/a": VALUE})
    await vault.reveal(A, note=NOTE)
    await vault.put(A, Secret(VALUE + "2"), actor="user:operator")
    await vault.rotate(actor="user:operator")
    attack(harness, "UPDATE vault_versions SET sealed = substr(sealed, 1, length(sealed) - 1)")
    with pytest.raises(VaultTampered) as caught:
        await vault.reveal(A, note=NOTE)
    assert VALUE not in str(caught.value.as_dict())
    await vault.delete(A, actor="user:operator")
    shown = json.dumps(harness.events())
    assert VALUE not in shown
    assert holders(tmp_path, VALUE) == []


async def test_an_agent_does_not_see_a_value_that_a_tool_prints(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        await harness.gateway.vault.put(A, Secret(VALUE), actor="user:operator")
        record = await harness.call("echo", {"text": f"token={VALUE} " + base64.b64encode(VALUE.encode()).decode()})
        assert VALUE not in json.dumps(record.result) and "[redacted]" in record.result["text"]
        assert base64.b64encode(VALUE.encode())[:-4].decode() not in json.dumps(record.result)
        assert VALUE not in json.dumps(harness.events())
        stored = harness.gateway.store.read("SELECT record FROM calls")
        assert stored and VALUE.encode() not in stored[0][0]


def test_a_value_is_in_no_process_list_log_file_or_answer(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.daemon() as daemon:
        running = subprocess.Popen(
            [*_palyra(), "vault", "put", "global/a", "--json"],
            env=place.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        seen = b""
        deadline = time.monotonic() + 20
        while b"vault" not in seen and time.monotonic() < deadline:
            seen = Path(f"/proc/{running.pid}/cmdline").read_bytes()
        seen += Path(f"/proc/{running.pid}/environ").read_bytes()
        out, err = running.communicate(VALUE + "\n", timeout=60)
        assert running.returncode == 0 and VALUE not in out + err and VALUE.encode() not in seen
        # On the command line it is refused, and not repeated.
        wrong = place.palyra("vault", "put", "global/a", VALUE)
        assert wrong.status == 2 and VALUE not in wrong.stdout + wrong.stderr
        too_large = place.palyra("vault", "put", "global/a", stdin=VALUE * 10_000)
        assert too_large.status == 5 and VALUE not in too_large.stdout + too_large.stderr
        listed = place.palyra("vault", "list", "--json")
        assert VALUE not in listed.stdout and listed.data["secrets"][0]["version"] == 1
        assert VALUE.encode() not in Path(f"/proc/{daemon.process.pid}/cmdline").read_bytes()
        daemon.process.terminate()
        logged = daemon.process.stderr.read() if daemon.process.stderr else ""
        assert VALUE not in logged
    assert holders(tmp_path, VALUE) == []


def _palyra() -> tuple[str, ...]:
    from fakes.daemon import PALYRA

    return PALYRA


# The API and policy.


async def test_only_operators_reach_the_vault_through_the_api(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app = create_app(harness.gateway.service)
        boss = await operator(harness)
        made = await ask(app, "PUT", "/v1/vault/secrets/principal:agent:other/k", token=boss, body={"value": VALUE})
        assert made.status == 201 and VALUE not in made.body.decode()
        callers = {
            "a caller without the scope": await make_token(harness, "agent:bot"),
            "an agent with the scope": await make_token(harness, "agent:bot", TokenScope.CALL, TokenScope.OPERATE),
            "the owner of the secret": await make_token(harness, "agent:other", TokenScope.CALL, TokenScope.OPERATE),
            "nobody": None,
        }
        requests: list[tuple[str, str, object]] = [
            ("GET", "/v1/vault/secrets", b""),
            ("GET", "/v1/vault/secrets?scope=principal:agent:other", b""),
            ("PUT", "/v1/vault/secrets/principal:agent:other/k", {"value": "mine now"}),
            ("PUT", "/v1/vault/secrets/principal:agent:bot/k", {"value": "mine"}),
            ("DELETE", "/v1/vault/secrets/principal:agent:other/k", b""),
            ("POST", "/v1/vault/rotate", {}),
            ("POST", "/v1/vault/reveal", {"ref": "principal:agent:other/k", "confirm": "principal:agent:other/k"}),
        ]
        for who, token in callers.items():
            for method, path, body in requests:
                answer = await ask(app, method, path, token=token, body=body)
                assert answer.status in (401, 403), (who, method, path)
                assert VALUE not in answer.body.decode() and "principal:agent:other/k" not in str(
                    answer.document.get("data")
                )
        shown = await ask(app, "GET", "/v1/vault/secrets", token=boss)
        assert [one["version"] for one in shown.data["secrets"]] == [1]


@pytest.mark.promise("P-own-only")
async def test_another_principals_secret_is_not_used_whatever_policies_permit(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "open.cedar").write_text('@id("open") permit(principal, action, resource);\n')
    async with open_harness(tmp_path) as harness:
        secrets = harness.gateway.secrets
        for name in ("principal:agent:other/k", "channel:mcp/k", "skill:acme/k"):
            await harness.gateway.vault.put(ref(name), Secret(VALUE), actor="user:operator")
            with pytest.raises(ScopeDenied):
                await secrets.reveal(
                    ref(name), SecretUse(principal=Principal.parse("agent:bot"), channel="api", approved=True, run="R")
                )
        denied = harness.events(kind="vault.use_denied")
        assert [payload["ref"] for _, payload in denied] == ["principal:agent:other/k", "channel:mcp/k", "skill:acme/k"]
        assert harness.kinds(kind="vault.secret_used") == []


@pytest.mark.parametrize(
    "raw",
    [
        "global",
        "global/..",
        "../tokens",
        "global/a%2f..",
        "principal:agent:bot/../../a",
        "global/a/",
        "x" * 5000 + "/k",
    ],
)
async def test_odd_names_reach_nothing(tmp_path: Path, raw: str) -> None:
    async with open_harness(tmp_path) as harness:
        app = create_app(harness.gateway.service)
        boss = await operator(harness)
        answer = await ask(app, "PUT", f"/v1/vault/secrets/{raw}", token=boss, body={"value": "x"})
        assert answer.status in (400, 404)
        assert harness.gateway.vault.list() == []


async def test_a_value_is_shown_only_with_a_policy_and_its_name_typed(tmp_path: Path) -> None:
    permit = '@id("see") permit(principal, action == Action::"vault.reveal", resource == Secret::"global/a");\n'
    async with open_harness(tmp_path) as harness:
        app = create_app(harness.gateway.service)
        boss = await operator(harness)
        for name in ("global/a", "global/b"):
            await harness.gateway.vault.put(ref(name), Secret(VALUE), actor="user:operator")
        body = {"ref": "global/a", "confirm": "global/a"}
        assert (await ask(app, "POST", "/v1/vault/reveal", token=boss, body=body)).code == "action.denied"
        (tmp_path / "policies").mkdir(exist_ok=True)
        (tmp_path / "policies" / "see.cedar").write_text(permit)
        await harness.gateway.policy.reload()
        wrong = await ask(app, "POST", "/v1/vault/reveal", token=boss, body={**body, "confirm": "yes"})
        assert wrong.code == "vault.not_confirmed" and VALUE not in wrong.body.decode()
        other = await ask(app, "POST", "/v1/vault/reveal", token=boss, body={"ref": "global/b", "confirm": "global/b"})
        assert other.code == "action.denied"
        shown = await ask(app, "POST", "/v1/vault/reveal", token=boss, body=body)
        assert shown.data == {"ref": "global/a", "value": VALUE}
        ((_, payload),) = harness.events(kind="vault.secret_used")
        assert (payload["purpose"], payload["policies"]) == ("reveal", ["see"])


async def test_tampering_with_the_place_of_a_key_leads_nowhere_else(harness: VaultHarness) -> None:
    """The record of a key says where it is; whoever edits that gets an error, not another key."""
    await harness.filled({"global/a": "x"})
    for change in ("source = 'environment'", "source = '../../etc'", "parameters = '{\"n\": 4}'"):
        before = rows(harness, "SELECT * FROM vault_keys")
        attack(harness, f"UPDATE vault_keys SET {change}")
        try:
            assert (await harness.vault().reveal(A, note=NOTE)).reveal() == "x"
        except PalyraError as error:
            assert error.code == "vault.key_missing"
        restore(harness, {"vault_keys": before}, "vault_keys")
