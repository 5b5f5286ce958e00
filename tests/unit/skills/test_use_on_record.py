import msgspec

from palyra.skills.registry.lifecycle import KEY_REVOKED, KINDS, UseOnRecord


def applied(*events: tuple[str, str]) -> UseOnRecord:
    """Kinds without their `skill.`, and digests; all of one skill."""
    record = UseOnRecord()
    for seq, (kind, digest) in enumerate(events, start=1):
        payload = {"skill_id": "a.b", "version": f"v{digest}", "digest": digest, "key_id": "K", "errors": 0}
        record.apply(seq, f"skill.{kind}", msgspec.json.encode(payload))
    return record


def in_use(*events: tuple[str, str]) -> str:
    found = applied(*events).in_use("a.b")
    return found.digest if found is not None else ""


def test_what_was_put_in_use_last_and_not_taken_out_since_is_in_use() -> None:
    for kind in ("approved", "enabled", "rolled_back"):
        assert in_use((kind, "1")) == "1"
        for end in ("disabled", "quarantined", "superseded", "failed", "removed"):
            assert in_use((kind, "1"), (end, "1")) == ""
            assert in_use((kind, "1"), (end, "1"), ("approved", "1")) == "1"


def test_what_happens_to_another_version_leaves_it_in_use() -> None:
    upgrade = (("approved", "1"), ("quarantined", "2"))
    assert in_use(*upgrade) == "1"
    assert in_use(*upgrade, ("superseded", "1"), ("approved", "2")) == "2"
    assert in_use(*upgrade, ("superseded", "1"), ("approved", "2"), ("removed", "1")) == "2"
    assert in_use(*upgrade, ("removed", "2")) == "1"


def test_the_entry_is_named_and_another_skill_is_not_touched() -> None:
    found = applied(("approved", "1")).in_use("a.b")
    assert found is not None and (found.seq, found.version, found.key_id) == (1, "v1", "K")
    assert applied(("approved", "1")).in_use("a.c") is None


def test_revoked_keys_and_how_far_it_was_told() -> None:
    record = applied(("approved", "1"))
    record.apply(9, KEY_REVOKED, b'{"key_id":"K"}')
    assert record.revoked == {"K"} and record.seq == 9 and KEY_REVOKED in KINDS


def test_what_somebody_has_broken_says_nothing() -> None:
    record = applied(("approved", "1"))
    for broken in (b"", b"[]", b"\xff", b'{"a":"\xff"}', b"[" * 100_000, b'{"skill_id":["a.b"],"digest":"1"}'):
        record.apply(2, "skill.removed", broken)
    assert record.in_use("a.b") is not None
