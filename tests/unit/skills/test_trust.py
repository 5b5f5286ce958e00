from typing import Any

import msgspec
import pytest

from fakes.skill_harness import manifest
from palyra.errors import PalyraError
from palyra.skills.package.manifest import parse_manifest
from palyra.skills.trust.publisher_keys import (
    Downgrade,
    KeyNotThePublishers,
    KeyRevoked,
    KeySource,
    KeyState,
    PublisherKey,
    SkillIdTaken,
    SkillOwner,
    TrustLevel,
    TrustQuestion,
    UntrustedPublisher,
    require_no_downgrade,
    require_trust,
)


def key(key_id: str, **more: Any) -> PublisherKey:
    fields = {"publisher": "acme", "public_key": b"", "source": KeySource.ALLOWLISTED, **more}
    return PublisherKey(key_id=key_id, **fields)


def owner(**more: Any) -> SkillOwner:
    fields = {"skill_id": "acme.notes", "publisher": "acme", "key_id": "K1", "newest_approved": "1.0.0", **more}
    return SkillOwner(**fields)


def asked(**more: Any) -> TrustLevel:
    question = TrustQuestion(
        manifest=parse_manifest(manifest(more=more.pop("toml", ""))),
        key_id="K1",
        keys=(),
        revoked=frozenset(),
        owner=None,
    )
    return require_trust(msgspec.structs.replace(question, **more))


def test_a_listed_key_is_trusted_for_every_skill_of_its_publisher() -> None:
    assert asked(keys=[key("K1")]) is TrustLevel.ALLOWLISTED
    assert asked(keys=[key("K1")], owner=owner(key_id="K0")) is TrustLevel.ALLOWLISTED


def test_a_stranger_is_let_in_on_first_use_only_where_that_is_on() -> None:
    with pytest.raises(UntrustedPublisher):
        asked()
    assert asked(trust_on_first_use=True) is TrustLevel.FIRST_USE
    with pytest.raises(UntrustedPublisher):
        asked(trust_on_first_use=True, toml="[trust]\nrequires_allowlisted_publisher = true\n")
    with pytest.raises(UntrustedPublisher, match="any more"):
        asked(trust_on_first_use=True, owner=owner())


def test_a_pinned_key_holds_for_the_skill_it_was_pinned_for() -> None:
    pinned = [key("K1", source=KeySource.FIRST_USE), key("K2", source=KeySource.FIRST_USE)]
    assert asked(keys=pinned, owner=owner()) is TrustLevel.PINNED
    assert asked(keys=pinned) is TrustLevel.PINNED
    with pytest.raises(KeyNotThePublishers, match="pinned to K1"):
        asked(keys=pinned, owner=owner(), key_id="K2")


def test_a_known_publisher_never_gets_a_second_key_by_itself() -> None:
    for first_use in (False, True):
        with pytest.raises(KeyNotThePublishers, match="not theirs"):
            asked(keys=[key("K9")], trust_on_first_use=first_use)


def test_a_rotated_key_inherits_and_the_old_one_is_over() -> None:
    keys = [
        key("K1", source=KeySource.FIRST_USE, state=KeyState.RETIRED),
        key("K2", source=KeySource.ROTATED, state=KeyState.RETIRED, replaces="K1"),
        key("K3", source=KeySource.ROTATED, replaces="K2"),
    ]
    assert asked(keys=keys, owner=owner(), key_id="K3") is TrustLevel.PINNED
    with pytest.raises(KeyNotThePublishers, match="replaced"):
        asked(keys=keys, owner=owner())


def test_revoked_is_revoked_whatever_the_list_says() -> None:
    with pytest.raises(KeyRevoked):
        asked(keys=[key("K1")], revoked=frozenset(("K1",)))
    with pytest.raises(PalyraError):
        asked(keys=[key("K1", state=KeyState.REVOKED)])


@pytest.mark.parametrize("state", [KeyState.REMOVED, KeyState.REVOKED])
def test_whose_keys_are_all_gone_is_not_met_for_the_first_time(state: KeyState) -> None:
    for key_id in ("K1", "K9"):
        with pytest.raises(UntrustedPublisher, match="any more"):
            asked(keys=[key("K1", state=state)], key_id=key_id, trust_on_first_use=True)
        with pytest.raises(KeyNotThePublishers):
            asked(keys=[key("K1", state=state), key("K2")], key_id=key_id, trust_on_first_use=True)


def test_a_removed_key_hands_nothing_down() -> None:
    keys = [
        key("K1", source=KeySource.FIRST_USE, state=KeyState.RETIRED),
        key("K2", source=KeySource.ROTATED, state=KeyState.REMOVED, replaces="K1"),
        key("K3", source=KeySource.ROTATED, replaces="K2"),
    ]
    with pytest.raises(KeyNotThePublishers, match="pinned to K1"):
        asked(keys=keys, owner=owner(), key_id="K3")


def test_an_id_stays_with_its_publisher() -> None:
    with pytest.raises(SkillIdTaken):
        asked(keys=[key("K1")], owner=owner(publisher="zeta"))


def test_nothing_below_the_newest_approved() -> None:
    newer = parse_manifest(manifest("1.0.1"))
    require_no_downgrade(newer, None)
    require_no_downgrade(newer, owner(newest_approved="1.0.1"))
    with pytest.raises(Downgrade):
        require_no_downgrade(newer, owner(newest_approved="1.0.2-rc.1"))
