"""Tokens in the table: the secret is shown once and is nowhere on the disk."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.journal_harness import JournalHarness
from palyra.identity import api_tokens
from palyra.identity.api_tokens import TokenRecord, TokenScope, Unauthenticated, UnknownToken
from palyra.identity.tables import TOKENS
from palyra.ids import Principal, TokenId
from palyra.store.sqlite.store import SqliteStore

BOT = Principal.parse("agent:bot")


@pytest.fixture
def harness(tmp_path: Path) -> JournalHarness:
    return JournalHarness(tmp_path)


@pytest.fixture
def store(harness: JournalHarness) -> Iterator[SqliteStore]:
    opened = harness.open(schema=TOKENS)
    yield opened
    opened.close()


def create(store: SqliteStore, ttl_ms: int | None = None) -> tuple[TokenRecord, str]:
    record, text = store.transact_blocking(
        lambda tx: api_tokens.create_token(tx, BOT, (TokenScope.CALL,), actor="user:op", label="l", ttl_ms=ttl_ms)
    )
    return record, text.reveal()


@pytest.mark.promise("P-tokens")
def test_only_the_hash_of_a_token_is_kept(harness: JournalHarness, store: SqliteStore) -> None:
    _, text = create(store)
    secret = text.rpartition("_")[2].encode() if text.count("_") == 2 else text[31:].encode()
    store.seal()
    for file in harness.folder.iterdir():
        # A checkpoint that is being written has another name for a moment.
        with contextlib.suppress(FileNotFoundError):
            assert secret not in file.read_bytes(), file.name


def test_two_tokens_share_nothing(store: SqliteStore) -> None:
    assert len({create(store)[1][31:] for _ in range(20)}) == 20


def test_a_token_works_until_it_is_revoked_and_never_again(harness: JournalHarness, store: SqliteStore) -> None:
    record, text = create(store)
    assert api_tokens.authenticate(store, text, harness.clock.now).principal == "agent:bot"
    token_id = TokenId(record.token_id)
    first = store.transact_blocking(lambda tx: api_tokens.revoke_token(tx, token_id, actor="user:op"))
    again = store.transact_blocking(lambda tx: api_tokens.revoke_token(tx, token_id, actor="user:op"))
    assert first.revoked_ms == again.revoked_ms, "the first moment stays"
    with pytest.raises(Unauthenticated):
        api_tokens.authenticate(store, text, harness.clock.now)
    events = store.events_since(0, 10)
    assert [event.kind for event in events] == ["credential.created", "credential.revoked"]
    assert events[0].payload_value() == {"id": record.token_id, "scopes": ["call"], "label": "l", "run_id": ""}


def test_a_token_ends_by_itself(harness: JournalHarness, store: SqliteStore) -> None:
    record, text = create(store, ttl_ms=1_000)
    assert record.expires_ms is not None
    api_tokens.authenticate(store, text, record.expires_ms - 1)
    with pytest.raises(Unauthenticated):
        api_tokens.authenticate(store, text, record.expires_ms)


def test_the_right_id_with_another_secret_is_not_accepted(store: SqliteStore) -> None:
    _, mine = create(store)
    _, theirs = create(store)
    with pytest.raises(Unauthenticated):
        api_tokens.authenticate(store, theirs[:31] + mine[31:], 0)


def test_an_id_is_a_value_and_not_sql(store: SqliteStore) -> None:
    create(store)
    with pytest.raises(UnknownToken):
        store.transact_blocking(lambda tx: api_tokens.revoke_token(tx, TokenId("' OR 1=1 --"), actor="x"))
    assert all(record.revoked_ms is None for record in api_tokens.list_tokens(store))
