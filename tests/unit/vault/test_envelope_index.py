from typing import Any

import msgspec
import pytest

from fakes.vault_harness import ref
from palyra.vault.envelope import SecretHead, VaultState, bucket_digest, bucket_of, require_head
from palyra.vault.key_source import VaultTampered
from palyra.vault.limits import INDEX_BUCKETS

KEY = b"i" * 32
HEAD = SecretHead(
    ref=ref("global/k"), current=3, oldest=1, live=True, created_ms=10, updated_ms=20, updated_by="user:a"
)
STATE = VaultState.first("v", "kek:1", KEY)


@pytest.mark.parametrize(
    "change",
    [{"ref": ref("global/l")}, {"current": 2}, {"oldest": 2}, {"live": False}, {"created_ms": 11}, {"updated_ms": 21},
     {"updated_by": "user:b"}],
    ids=str,
)  # fmt: skip
def test_every_field_of_a_head_is_under_its_tag(change: dict[str, Any]) -> None:
    tag = HEAD.tag("v", KEY)
    require_head(HEAD, "v", KEY, tag)
    with pytest.raises(VaultTampered):
        require_head(msgspec.structs.replace(HEAD, **change), "v", KEY, tag)


def test_a_head_of_another_vault_or_index_key_is_refused() -> None:
    for vault_id, key in (("w", KEY), ("v", b"j" * 32)):
        with pytest.raises(VaultTampered):
            require_head(HEAD, vault_id, key, HEAD.tag("v", KEY))


@pytest.mark.parametrize(
    "change",
    [{"vault_id": "w"}, {"revision": 1}, {"seq": 1}, {"live": 1}, {"active_key": "kek:2"}, {"previous_key": "kek:0"},
     {"buckets": STATE.buckets[:-1] + b"\0"}],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_every_field_of_the_state_is_under_its_tag(change: dict[str, Any]) -> None:
    STATE.require(KEY, STATE.tag(KEY), None)
    with pytest.raises(VaultTampered):
        msgspec.structs.replace(STATE, **change).require(KEY, STATE.tag(KEY), None)


def test_a_state_that_the_journal_has_outrun_was_turned_back() -> None:
    state = msgspec.structs.replace(STATE, seq=7)
    tag = state.tag(KEY)
    state.require(KEY, tag, 7)
    # A journal that lost its end is the journal's to find.
    state.require(KEY, tag, 6)
    with pytest.raises(VaultTampered, match="turned back"):
        state.require(KEY, tag, 8)


def test_a_bucket_knows_its_entries_and_their_order() -> None:
    one, two = b"1" * 32, b"2" * 32
    bucket = 5
    buckets = STATE.with_bucket(bucket, bucket_digest(KEY, "v", bucket, (one, two)))
    state = msgspec.structs.replace(STATE, buckets=buckets)
    state.require_bucket(KEY, bucket, (one, two))
    state.require_bucket(KEY, 6, ())
    for tags in ((), (one,), (two, one), (one, two, two), (one, one)):
        with pytest.raises(VaultTampered):
            state.require_bucket(KEY, bucket, tags)


def test_refs_spread_over_the_buckets() -> None:
    used = {bucket_of(ref(f"global/k{number}")) for number in range(5000)}
    assert used == set(range(INDEX_BUCKETS))


def test_keys_in_use_are_the_active_one_and_the_one_being_replaced() -> None:
    assert STATE.keys_in_use() == {"kek:1"}
    assert msgspec.structs.replace(STATE, previous_key="kek:0").keys_in_use() == {"kek:0", "kek:1"}
