import pytest

from palyra.skills.registry.lifecycle import KEPT, KIND_OF, TRANSITIONS, SkillEvent, SkillState, WrongState, after


def test_every_pair_is_handled_or_refused() -> None:
    for state in SkillState:
        for event in SkillEvent:
            if (state, event) in TRANSITIONS:
                assert after(state, event) is TRANSITIONS[state, event]
            else:
                with pytest.raises(WrongState, match=state.value):
                    after(state, event)


def test_every_way_into_use_passes_a_person_and_the_audit() -> None:
    ways = {(state, event) for (state, event), target in TRANSITIONS.items() if target is SkillState.APPROVED}
    assert ways == {
        (SkillState.QUARANTINED, SkillEvent.APPROVE),
        (SkillState.DISABLED, SkillEvent.ENABLE),
        (SkillState.SUPERSEDED, SkillEvent.ROLL_BACK),
    }
    # Disabled and superseded are reached from use only.
    for inner in (SkillState.DISABLED, SkillState.SUPERSEDED):
        origins = {state for (state, _), target in TRANSITIONS.items() if target is inner}
        assert origins <= {SkillState.APPROVED, SkillState.DISABLED}
    origins = {state for (state, _), target in TRANSITIONS.items() if target is SkillState.QUARANTINED}
    assert SkillState.INGESTED not in origins and SkillState.FAILED not in origins


def test_events_have_names_in_the_journal_and_every_state_is_reached() -> None:
    assert KIND_OF.keys() == set(SkillEvent) and len(set(KIND_OF.values())) == len(KIND_OF)
    assert set(TRANSITIONS.values()) == set(SkillState) and SkillState.FAILED not in KEPT


@pytest.mark.parametrize(
    ("state", "event", "words"),
    [
        (SkillState.SUPERSEDED, SkillEvent.APPROVE, "palyra skill rollback SKILL --version VERSION"),
        (SkillState.DISABLED, SkillEvent.APPROVE, "palyra skill enable SKILL"),
        (SkillState.QUARANTINED, SkillEvent.ENABLE, "palyra skill approve SKILL VERSION"),
        (SkillState.REMOVED, SkillEvent.ROLL_BACK, "palyra skill install FILE"),
        (SkillState.APPROVED, SkillEvent.APPROVE, "palyra skill show SKILL"),
        (SkillState.SUPERSEDED, SkillEvent.DISABLE, "palyra skill show SKILL"),
    ],
)
def test_who_cannot_put_a_version_in_use_so_is_told_how(state: SkillState, event: SkillEvent, words: str) -> None:
    with pytest.raises(WrongState) as refused:
        after(state, event)
    assert words in refused.value.hint
