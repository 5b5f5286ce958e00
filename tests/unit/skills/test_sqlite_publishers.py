import sqlite3

import pytest

from fakes.skill_harness import ACTOR, SkillHarness, key
from palyra.signing.ed25519 import Ed25519Verifier
from palyra.skills.registry.publisher_tables import (
    PublisherTables,
    TooManyKeys,
    UnknownPublisherKey,
    list_all_unreadable,
    list_keys,
    list_revoked,
    list_unreadable,
)
from palyra.skills.registry.records import RecordChanged
from palyra.skills.trust.publisher_keys import (
    KeyNotThePublishers,
    KeyRevoked,
    KeySource,
    KeyState,
    PublisherKey,
    VerifiedRotation,
    make_rotation,
    verify_rotation,
)


def add(harness: SkillHarness, name: str, source: KeySource = KeySource.ALLOWLISTED) -> PublisherKey:
    signer = key(name)
    return harness.store.transact_blocking(
        lambda tx: PublisherTables(tx).add("acme", signer.key_id, signer.public_key(), source, actor=ACTOR)
    )


def rotation(old: str, new: str, publisher: str = "acme") -> VerifiedRotation:
    return verify_rotation(make_rotation(publisher, key(old), key(new).public_key()), Ed25519Verifier.from_public_bytes)


def rotate(harness: SkillHarness, statement: VerifiedRotation) -> PublisherKey:
    return harness.store.transact_blocking(lambda tx: PublisherTables(tx).rotate(statement, actor=ACTOR))


def revoke(harness: SkillHarness, name: str) -> None:
    harness.store.transact_blocking(lambda tx: PublisherTables(tx).revoke(key(name).key_id, "stolen", actor=ACTOR))


def states(harness: SkillHarness) -> dict[str, KeyState]:
    return {one.key_id: one.state for one in list_keys(harness.store)}


def test_adding_twice_changes_nothing_and_an_operators_word_outranks_a_first_use(harness: SkillHarness) -> None:
    add(harness, "a", KeySource.FIRST_USE)
    add(harness, "a", KeySource.FIRST_USE)
    assert add(harness, "a").source is KeySource.ALLOWLISTED
    assert add(harness, "a", KeySource.FIRST_USE).source is KeySource.ALLOWLISTED
    assert harness.kinds() == ["skill.publisher_pinned", "skill.publisher_added"]


def test_a_rotation_retires_the_old_key_and_cannot_be_replayed(harness: SkillHarness) -> None:
    add(harness, "a")
    new = rotate(harness, rotation("a", "b"))
    assert (new.source, new.replaces) == (KeySource.ALLOWLISTED, key("a").key_id)
    assert states(harness) == {key("a").key_id: KeyState.RETIRED, key("b").key_id: KeyState.ACTIVE}
    for statement in (rotation("a", "b"), rotation("a", "thief"), rotation("b", "a"), rotation("b", "c", "zeta")):
        with pytest.raises(KeyNotThePublishers):
            rotate(harness, statement)
    assert rotate(harness, rotation("b", "c")).replaces == key("b").key_id


def test_a_first_use_key_rotates_into_no_more_than_it_was(harness: SkillHarness) -> None:
    add(harness, "a", KeySource.FIRST_USE)
    assert rotate(harness, rotation("a", "b")).source is KeySource.ROTATED


def test_revoked_is_for_good_for_everybody_and_in_advance(harness: SkillHarness) -> None:
    add(harness, "a")
    revoke(harness, "a")
    revoke(harness, "a")
    revoke(harness, "never seen")
    assert states(harness) == {key("a").key_id: KeyState.REVOKED}
    assert {one["key_id"] for one in list_revoked(harness.store)} == {key("a").key_id, key("never seen").key_id}
    assert harness.kinds().count("skill.key_revoked") == 2
    for name in ("a", "never seen"):
        with pytest.raises(KeyRevoked):
            add(harness, name)
    add(harness, "good")
    with pytest.raises(KeyRevoked):
        rotate(harness, rotation("good", "never seen"))
    with pytest.raises(KeyNotThePublishers):
        rotate(harness, rotation("a", "thief"))


def remove(harness: SkillHarness, name: str) -> PublisherKey:
    return harness.store.transact_blocking(lambda tx: PublisherTables(tx).remove("acme", key(name).key_id, actor=ACTOR))


def test_removing_and_limits(harness: SkillHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palyra.skills.registry.publisher_tables.MAX_KEYS_PER_PUBLISHER", 1)
    add(harness, "a")
    with pytest.raises(TooManyKeys):
        add(harness, "b")
    gone = remove(harness, "a")
    assert list_keys(harness.store) == [gone] and gone.state is KeyState.REMOVED and gone.ended_ms is not None
    with pytest.raises(UnknownPublisherKey, match="it was removed"):
        remove(harness, "a")
    # It takes nobody's place, and of many only the newest stay.
    add(harness, "b")
    with pytest.raises(TooManyKeys):
        add(harness, "a")
    remove(harness, "b")
    assert len(states(harness)) == 1 and set(states(harness).values()) == {KeyState.REMOVED}


def test_a_removed_key_comes_back_by_an_operators_word_alone(harness: SkillHarness) -> None:
    add(harness, "a", KeySource.FIRST_USE)
    add(harness, "b")
    remove(harness, "a")
    for statement in (rotation("a", "c"), rotation("b", "a")):
        with pytest.raises(KeyNotThePublishers):
            rotate(harness, statement)
    again = add(harness, "a")
    assert (again.state, again.source, again.ended_ms) == (KeyState.ACTIVE, KeySource.ALLOWLISTED, None)
    assert states(harness)[key("a").key_id] is KeyState.ACTIVE


def test_a_revoked_key_is_not_removed_and_a_removed_one_can_be_revoked(harness: SkillHarness) -> None:
    add(harness, "a")
    remove(harness, "a")
    revoke(harness, "a")
    assert states(harness) == {key("a").key_id: KeyState.REVOKED}
    with pytest.raises(UnknownPublisherKey, match="it was revoked"):
        remove(harness, "a")


def broken(harness: SkillHarness, name: str, change: str) -> None:
    database = sqlite3.connect(harness.journal.database)
    with database:
        database.execute(f"UPDATE skill_keys SET {change} WHERE key_id = ?", (key(name).key_id,))
    database.close()


BROKEN = {
    "state": "state = 'nonsense'",
    "source": "source = ''",
    "no text": "added_by = CAST(x'ff' AS TEXT)",
    "no text in its state": "state = CAST(x'ff' AS TEXT)",
    "no time": "added_ms = 9000000000000000000",
    "no end": "ended_ms = -9000000000000000000",
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_row_that_cannot_be_read_is_refused_alone_and_on_record_once(harness: SkillHarness, how: str) -> None:
    add(harness, "a")
    add(harness, "b")
    broken(harness, "a", BROKEN[how])
    assert states(harness) == {key("b").key_id: KeyState.ACTIVE}
    found = list_unreadable(harness.store)
    for _ in range(2):
        harness.store.transact_blocking(lambda tx: PublisherTables(tx).fail_unreadable(found, actor="palyrad"))
    assert list_unreadable(harness.store) == []
    (recorded,) = [payload for _, payload in harness.events("skill.key_unreadable")]
    assert (recorded["publisher"], recorded["key_id"]) == ("acme", key("a").key_id)
    assert recorded["reason"].startswith("skill.record_changed: ")
    # It vouches for nobody, and nobody for it; the other key does what it did.
    with pytest.raises(RecordChanged, match=key("a").key_id):
        rotate(harness, rotation("a", "c"))
    with pytest.raises(KeyNotThePublishers):
        rotate(harness, rotation("b", "a"))
    assert rotate(harness, rotation("b", "c")).replaces == key("b").key_id


@pytest.mark.parametrize("how", BROKEN)
def test_a_row_that_was_marked_is_still_refused_and_listed_with_its_cause(harness: SkillHarness, how: str) -> None:
    add(harness, "a")
    add(harness, "b")
    broken(harness, "a", BROKEN[how])
    found = list_unreadable(harness.store)
    assert list_all_unreadable(harness.store) == found and found[0].why
    harness.store.transact_blocking(lambda tx: PublisherTables(tx).fail_unreadable(found, actor="palyrad"))
    (marked,) = list_all_unreadable(harness.store)
    assert (marked.publisher, marked.key_id, marked.why) == ("acme", key("a").key_id, found[0].why)
    with pytest.raises(RecordChanged) as refused:
        rotate(harness, rotation("a", "c"))
    assert refused.value.message == found[0].refusal().message
    # Cleared and broken again, the new cause is reported.
    remove(harness, "a")
    broken(harness, "a", "source = 'another'")
    again = list_unreadable(harness.store)
    harness.store.transact_blocking(lambda tx: PublisherTables(tx).fail_unreadable(again, actor="palyrad"))
    assert [one.why for one in list_all_unreadable(harness.store)] == ["'another' is not a valid KeySource"]


def test_a_mark_that_nobody_recorded_is_told_as_that(harness: SkillHarness) -> None:
    add(harness, "a")
    broken(harness, "a", "state = 'unreadable'")
    (marked,) = list_all_unreadable(harness.store)
    assert marked.why == "it is marked as unreadable, and the journal does not say why"


@pytest.mark.parametrize("how", BROKEN)
def test_a_row_that_cannot_be_read_is_cleared_made_anew_and_revoked(harness: SkillHarness, how: str) -> None:
    add(harness, "a")
    broken(harness, "a", BROKEN[how])
    assert remove(harness, "a").state is KeyState.REMOVED
    assert states(harness) == {key("a").key_id: KeyState.REMOVED}
    broken(harness, "a", BROKEN[how])
    assert add(harness, "a").state is KeyState.ACTIVE and states(harness) == {key("a").key_id: KeyState.ACTIVE}
    broken(harness, "a", BROKEN[how])
    revoke(harness, "a")
    assert harness.events("skill.key_revoked")[-1][1]["publishers"] == ["acme"]
    with pytest.raises(KeyRevoked):
        add(harness, "a")


@pytest.mark.parametrize("column", ["publisher", "key_id"])
def test_a_row_whose_name_is_no_text_is_cleared_by_the_name_that_is_shown(harness: SkillHarness, column: str) -> None:
    add(harness, "a")
    add(harness, "b")
    broken(harness, "a", f"{column} = CAST(x'6162ff' AS TEXT)")
    (shown,) = list_unreadable(harness.store)
    assert getattr(shown, column) == "ab\\xff"
    removed = harness.store.transact_blocking(
        lambda tx: PublisherTables(tx).remove(shown.publisher, shown.key_id, actor="user:operator")
    )
    assert removed.state is KeyState.REMOVED and list_unreadable(harness.store) == []
    assert states(harness) == {key("b").key_id: KeyState.ACTIVE}
